package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// OpenRegularIn opens a regular file in a folder that a task made or may still change. It follows symbolic links that stay in the folder.
func OpenRegularIn(folder *os.Root, name string) (*os.File, error) {
	f, err := folder.OpenFile(name, os.O_RDONLY|nonBlock, 0)
	return onlyRegular(f, err)
}

// onlyRegular passes on the results of an open, and closes anything but a regular file.
func onlyRegular(f *os.File, err error) (*os.File, error) {
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		_ = f.Close()
		return nil, errNotRegular
	}
	return f, nil
}

// ReplaceFile replaces a file in a folder that a task made or may still change. A symbolic link is replaced, and not followed; no folder on
// the path may leave the folder.
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

var errNotRegular = errors.New("not a regular file")

// OpenRegular opens a file that a task made, if it is a regular one: a link may lead anywhere, and a pipe would block.
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
		return nil, errors.New("the file was replaced while it was opened")
	}
	return f, nil
}

// ContextReader returns a reader of r whose reads fail after ctx has ended.
func ContextReader(ctx context.Context, r io.Reader) io.Reader {
	return readFunc(func(b []byte) (int, error) {
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		return r.Read(b)
	})
}

type readFunc func(b []byte) (int, error)

func (f readFunc) Read(b []byte) (int, error) { return f(b) }

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
