//go:build unix

package output

import (
	"errors"
	"io"
	"syscall"
)

// reader returns what reads the next piece into the buffer behind end. It holds a
// buffer only while there is something to put into it.
func (p *pump) reader() func() (int, error) {
	conn, err := p.r.SyscallConn()
	if err != nil {
		return func() (int, error) { return 0, err }
	}
	var (
		n  int
		no error
	)
	look := func(fd uintptr) bool {
		p.takeBuffer()
		for {
			n, no = syscall.Read(int(fd), p.buf[p.end:])
			if !errors.Is(no, syscall.EINTR) {
				break
			}
		}
		if errors.Is(no, syscall.EAGAIN) {
			p.giveBuffer()
			return false
		}
		return true
	}
	return func() (int, error) {
		n, no = 0, nil
		if err := conn.Read(look); err != nil {
			return 0, err
		}
		switch {
		case no != nil:
			return 0, no
		case n == 0:
			return 0, io.EOF
		}
		return n, nil
	}
}
