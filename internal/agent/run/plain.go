package run

import (
	"errors"
	"os"
)

// OpenIn opens a plain file in a folder that a task made or may still change. Links are
// followed as far as they stay in it.
func OpenIn(folder *os.Root, name string) (*os.File, error) {
	f, err := folder.OpenFile(name, os.O_RDONLY|noWait, 0)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		_ = f.Close()
		return nil, errNotPlain
	}
	return f, nil
}

var errNotPlain = errors.New("it is not a plain file")

// OpenPlain opens a file that a task made, if it is a plain one: a link may lead
// anywhere, and a pipe would block.
func OpenPlain(path string) (*os.File, error) {
	before, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !before.Mode().IsRegular() {
		return nil, errNotPlain
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
