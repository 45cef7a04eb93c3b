//go:build unix

package output

import (
	"errors"
	"io"
	"os"
	"syscall"
)

// maxPipeSize is the maximum capacity of a pipe, and so what is read after cutOff: a process that still writes would do so forever.
const maxPipeSize = 1 << 20

// reader returns a function that reads into space. It holds buffers only while there is data.
func (p *pump) reader() func() (int, error) {
	conn, err := p.r.SyscallConn()
	if err != nil {
		return func() (int, error) { return 0, err }
	}
	var (
		n     int
		errno error
	)
	tryRead := func(fd uintptr) bool {
		for {
			n, errno = syscall.Read(int(fd), p.space())
			if !errors.Is(errno, syscall.EINTR) {
				break
			}
		}
		if errors.Is(errno, syscall.EAGAIN) {
			p.releaseBuffer()
			return false
		}
		return true
	}
	remaining := maxPipeSize
	return func() (int, error) {
		n, errno = 0, nil
		err := conn.Read(tryRead)
		if errors.Is(err, os.ErrDeadlineExceeded) && p.isCutOff() && remaining > 0 {
			err = conn.Control(func(fd uintptr) { tryRead(fd) })
			remaining -= max(n, 0)
		}
		switch {
		case err != nil:
			return 0, err
		case errno != nil:
			return 0, errno
		case n == 0:
			return 0, io.EOF
		}
		return n, nil
	}
}
