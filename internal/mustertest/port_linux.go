package mustertest

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster/internal/testkit"
)

// ReservePort keeps a port of loopback for a test. It is bound without a listener:
// the kernel gives it to no one else, also while the server is away, and lets the server
// have it, which names it and listens.
func ReservePort(tb testing.TB) (addr string) {
	tb.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	testkit.NoError(tb, err)
	tb.Cleanup(func() { _ = unix.Close(fd) })
	testkit.NoError(tb, unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1))
	testkit.NoError(tb, unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	name, err := unix.Getsockname(fd)
	testkit.NoError(tb, err)
	inet, ok := name.(*unix.SockaddrInet4)
	if !ok {
		tb.Fatalf("a port of loopback is %T", name)
	}
	return fmt.Sprintf("127.0.0.1:%d", inet.Port)
}
