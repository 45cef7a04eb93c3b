package wire

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// nonblockingWriter returns a function that writes to a connection without waiting and returns how much it wrote; nil if the connection does not
// support that. The next regular write returns the error.
func nonblockingWriter(conn net.Conn) func([]byte) int {
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
