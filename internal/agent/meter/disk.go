package meter

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/muster-dev/muster"
)

// DiskUsage adds up what folders take of the disk. It reports false if they hold very many files,
// cannot be read, or ctx ends before.
func DiskUsage(ctx context.Context, folders ...string) (size muster.Size, ok bool) {
	return diskUsage(ctx, folders, maxFiles)
}

// maxFiles is how many files of an attempt are counted whose disk is not limited: what a
// walk of more would cost the disk is more than the figure is worth.
const maxFiles = 200_000

var errTooMany = errors.New("too many files")

// diskUsage adds up the blocks that folders take, and reports false if they hold more
// than so many files or cannot be read. Files that vanish meanwhile are left out.
func diskUsage(ctx context.Context, folders []string, limit int) (size muster.Size, ok bool) {
	files := 0
	for _, folder := range folders {
		err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				if path == folder {
					return err
				}
				return nil // it vanished, or the task shut it
			}
			if files++; files > limit || ctx.Err() != nil {
				return errTooMany
			}
			if info, err := d.Info(); err == nil {
				size += blocks(info)
			}
			return nil
		})
		if err != nil {
			return 0, false
		}
	}
	return size, true
}
