//go:build unix

package cli

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// hasPipedInput reports whether a reader is a pipe that has data now.
func hasPipedInput(r io.Reader) bool {
	f, ok := r.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeNamedPipe == 0 {
		return false
	}
	conn, err := f.SyscallConn()
	if err != nil {
		return false
	}
	ready := false
	err = conn.Control(func(fd uintptr) {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, 0)
		ready = err == nil && n == 1 && fds[0].Revents&unix.POLLIN != 0
	})
	return err == nil && ready
}
