//go:build unix

package procfs

import (
	"errors"
	"io/fs"
	"syscall"
)

// ReadFile is os.ReadFile with plain system calls: such files can be polled, and the preparations of package os for that
// cost more than the reading.
func ReadFile(path string) ([]byte, error) {
	fd, err := open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = syscall.Close(fd) }()
	b := make([]byte, 0, 512)
	for {
		n, err := read(fd, path, b[len(b):cap(b)])
		if err != nil {
			return nil, err
		}
		if n == 0 {
			return b, nil
		}
		if b = b[:len(b)+n]; len(b) == cap(b) {
			b = append(b, 0)[:len(b)]
		}
	}
}

// readInto reads what fits of a file into buf, with one call.
func readInto(path string, buf []byte) ([]byte, error) {
	fd, err := open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = syscall.Close(fd) }()
	n, err := read(fd, path, buf)
	return buf[:max(n, 0)], err
}

func open(path string) (int, error) {
	for {
		fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
		if err == nil {
			return fd, nil
		}
		if !errors.Is(err, syscall.EINTR) {
			return -1, &fs.PathError{Op: "open", Path: path, Err: err}
		}
	}
}

func read(fd int, path string, b []byte) (int, error) {
	for {
		n, err := syscall.Read(fd, b)
		if err == nil {
			return n, nil
		}
		if !errors.Is(err, syscall.EINTR) {
			return 0, &fs.PathError{Op: "read", Path: path, Err: err}
		}
	}
}
