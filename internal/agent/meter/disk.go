package meter

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/muster-dev/muster"
)

// DiskUsage adds up the disk blocks of folders. It reports false if they hold more than 200,000 files,
// cannot be read, or ctx ends before it is done.
func DiskUsage(ctx context.Context, folders ...string) (size muster.Size, ok bool) {
	return diskUsage(ctx, folders, maxFiles)
}

// maxFiles is how many files of an attempt without a disk limit are counted: a longer walk loads the disk too much.
const maxFiles = 200_000

var errTooMany = errors.New("too many files")

// diskUsage is DiskUsage with a limit on the number of files and folders. Files that are removed meanwhile do not count.
func diskUsage(ctx context.Context, folders []string, limit int) (size muster.Size, ok bool) {
	files := 0
	for _, folder := range folders {
		err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				if path == folder {
					return err
				}
				return nil // it was removed, or the task denies access
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
