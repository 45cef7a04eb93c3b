package probe

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	gopsdisk "github.com/shirou/gopsutil/v4/disk"

	"github.com/muster-dev/muster"
)

// Disk is the file system of the data dir.
type Disk struct {
	Path  string      `json:"path"`
	Total muster.Size `json:"total,omitempty"`
	Free  muster.Size `json:"free,omitempty"` // for this user
}

func disk(ctx context.Context, dir string) (Disk, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return Disk{}, fmt.Errorf("the data dir is unknown: %w", err)
	}
	d := Disk{Path: dir}
	there := dir
	for {
		if _, err := os.Stat(there); err == nil || there == filepath.Dir(there) {
			break
		}
		there = filepath.Dir(there)
	}
	u, err := gopsdisk.UsageWithContext(ctx, there)
	if err != nil {
		return d, fmt.Errorf("the size of the disk under %s is unknown: %w", there, err)
	}
	d.Total, d.Free = muster.Size(u.Total), muster.Size(u.Free)
	return d, nil
}
