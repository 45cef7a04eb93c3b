package backup

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// syncTree makes all files below a directory survive a loss of power.
func syncTree(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(unix.Syncfs(int(dir.Fd())), dir.Close())
}
