package run

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// RemoveAll removes a folder, even if a task removed its own permissions. A missing folder is not an error.
func RemoveAll(dir string) error {
	if os.RemoveAll(dir) == nil {
		return nil
	}
	walk := func(path string, d fs.DirEntry, _ error) error {
		if d != nil && d.IsDir() {
			return os.Chmod(path, 0o700) //nolint:gosec // a folder needs its x bit
		}
		return nil
	}
	if err := filepath.WalkDir(dir, walk); err != nil {
		return fmt.Errorf("remove %s: %w", dir, err)
	}
	return os.RemoveAll(dir)
}
