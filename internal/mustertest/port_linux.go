package mustertest

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
)

// ReservePort keeps a port of loopback for a test. It is bound without a listener:
// the kernel gives it to no one else, also while the server is away, and lets the server
// have it, which names it and listens.
func ReservePort(tb testing.TB) (addr string) {
	tb.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = unix.Close(fd) })
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		tb.Fatal(err)
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		tb.Fatal(err)
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		tb.Fatal(err)
	}
	inet, ok := name.(*unix.SockaddrInet4)
	if !ok {
		tb.Fatalf("a port of loopback is %T", name)
	}
	return fmt.Sprintf("127.0.0.1:%d", inet.Port)
}
