//go:build !linux

package backup

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/muster-dev/muster/internal/atomicfile"
)

// syncTree makes all files below a directory survive a loss of power.
func syncTree(path string) error {
	return filepath.WalkDir(path, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() {
			return atomicfile.SyncDir(path)
		}
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		return errors.Join(f.Sync(), f.Close())
	})
}
