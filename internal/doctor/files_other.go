//go:build !unix

package doctor

import (
	"errors"
	"io/fs"
	"os"
)

func ownedByUser(fs.FileInfo) bool { return true }

// openToOthers returns false: permissions are not in the mode here.
func openToOthers(fs.FileInfo) bool { return false }

func checkMkdir(string) error { return nil }

// locked reports whether a file cannot be opened for writing, like one that another process has locked.
func locked(path string) (bool, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist), nil //nolint:nilerr // the error is the answer
	}
	return false, f.Close()
}

func maxFiles() uint64 { return 0 }
