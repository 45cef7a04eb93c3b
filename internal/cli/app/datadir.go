package app

import (
	"os"
	"path/filepath"

	"github.com/muster-dev/muster"
)

// DataDir returns an absolute path: dir, or by default a folder for this program in the
// user's folder for data.
func DataDir(dir, subdir string) (string, error) {
	if dir != "" {
		return filepath.Abs(dir)
	}
	root := os.Getenv("XDG_DATA_HOME")
	if root == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", muster.Errorf(muster.Invalid, "there is no place for the data: %w; name a folder with --data", err)
		}
		root = filepath.Join(home, ".local", "share")
	}
	return filepath.Join(root, "muster", subdir), nil
}
