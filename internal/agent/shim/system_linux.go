package shim

import (
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// newPipe makes a pipe whose reading end the runtime waits for, and whose writing end
// is as programs expect their output.
func newPipe() (r, w *os.File, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, err
	}
	if err := unix.SetNonblock(fds[0], true); err != nil {
		_ = unix.Close(fds[0])
		_ = unix.Close(fds[1])
		return nil, nil, err
	}
	return os.NewFile(uintptr(fds[0]), "output"), os.NewFile(uintptr(fds[1]), "output"), nil
}

// tryWriter returns what writes to a connection without waiting, and how much it wrote;
// nil if the connection has no such way. An error comes again at the next real write.
func tryWriter(conn net.Conn) func([]byte) int {
	c, ok := conn.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return nil
	}
	return func(b []byte) (n int) {
		_ = raw.Write(func(fd uintptr) bool {
			if len(b) > 0 {
				n, _ = unix.Write(int(fd), b)
			}
			return true
		})
		return max(n, 0)
	}
}
