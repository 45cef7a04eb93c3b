//go:build unix

package cgroup

import (
	"errors"
	"io/fs"
	"syscall"
)

// Package os prepares files that can be polled, such as control files, for polling. That costs more than their use.

// writeFile writes an existing control file with one call.
func writeFile(path, value string) error {
	fd, err := retry(func() (int, error) { return syscall.Open(path, syscall.O_WRONLY|syscall.O_CLOEXEC, 0) })
	if err != nil {
		return &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer func() { _ = syscall.Close(fd) }()
	if _, err := retry(func() (int, error) { return syscall.Write(fd, []byte(value)) }); err != nil {
		return &fs.PathError{Op: "write", Path: path, Err: err}
	}
	return nil
}

// removeDir removes an empty directory, or a group.
func removeDir(path string) error {
	if _, err := retry(func() (int, error) { return 0, syscall.Rmdir(path) }); err != nil {
		return &fs.PathError{Op: "rmdir", Path: path, Err: err}
	}
	return nil
}

func retry(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if !errors.Is(err, syscall.EINTR) {
			return n, err
		}
	}
}
