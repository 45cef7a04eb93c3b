package wire

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// nonblockingWriter returns what writes to a connection without waiting, and how much it wrote;
// nil if the connection has no such way. An error comes again at the next real write.
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
