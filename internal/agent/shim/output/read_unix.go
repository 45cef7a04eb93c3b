//go:build unix

package output

import (
	"errors"
	"io"
	"os"
	"syscall"
)

// fullPipe is the most that a pipe holds, and so the most that is read after the cut: who still
// writes to it does so for ever.
const fullPipe = 1 << 20

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
	left := fullPipe
	return func() (int, error) {
		n, no = 0, nil
		err := conn.Read(look)
		if errors.Is(err, os.ErrDeadlineExceeded) && p.cutOff() && left > 0 {
			err = conn.Control(func(fd uintptr) { look(fd) })
			left -= max(n, 0)
		}
		switch {
		case err != nil:
			return 0, err
		case no != nil:
			return 0, no
		case n == 0:
			return 0, io.EOF
		}
		return n, nil
	}
}
