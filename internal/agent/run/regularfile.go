package run

import (
	"errors"
	"os"
)

// OpenRegularIn opens a plain file in a folder that a task made or may still change. Links are
// followed as far as they stay in it.
func OpenRegularIn(folder *os.Root, name string) (*os.File, error) {
	f, err := folder.OpenFile(name, os.O_RDONLY|nonBlock, 0)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		_ = f.Close()
		return nil, errNotRegular
	}
	return f, nil
}

// ReplaceFile writes a new file into a directory that a task made or may still change, in place of what has its name. A link
// leads nowhere: it is replaced, and none of the folders on the way may lead out.
func ReplaceFile(folder *os.Root, name string, data []byte) error {
	if err := folder.RemoveAll(name); err != nil {
		return err
	}
	f, err := folder.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

var errNotRegular = errors.New("it is not a plain file")

// OpenRegular opens a file that a task made, if it is a plain one: a link may lead
// anywhere, and a pipe would block.
func OpenRegular(path string) (*os.File, error) {
	before, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !before.Mode().IsRegular() {
		return nil, errNotRegular
	}
	f, err := os.OpenFile(path, os.O_RDONLY|noFollowFlags, 0)
	if err != nil {
		return nil, err
	}
	if after, err := f.Stat(); err != nil || !os.SameFile(before, after) {
		_ = f.Close()
		return nil, errors.New("it was replaced while it was opened")
	}
	return f, nil
}
