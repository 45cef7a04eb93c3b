package run

import (
	"errors"
	"os"
)

// OpenPlain opens a file that a task made, if it is a plain one: a link may lead
// anywhere, and a pipe would block.
func OpenPlain(path string) (*os.File, error) {
	before, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !before.Mode().IsRegular() {
		return nil, errors.New("it is not a plain file")
	}
	f, err := os.OpenFile(path, os.O_RDONLY|openFlags, 0)
	if err != nil {
		return nil, err
	}
	if after, err := f.Stat(); err != nil || !os.SameFile(before, after) {
		_ = f.Close()
		return nil, errors.New("it was replaced while it was opened")
	}
	return f, nil
}
