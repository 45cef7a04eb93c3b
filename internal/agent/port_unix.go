//go:build unix

package agent

import (
	"context"
	"errors"
	"io"
	"os"
	"syscall"
)

// boundPort is a socket that is bound to a TCP port on all addresses. It does not listen: connections are refused, as before any process
// uses the port.
type boundPort int

// Close frees the port.
func (p boundPort) Close() error { return syscall.Close(int(p)) }

// bindPort reserves a TCP port on all addresses, or returns why it cannot. A port with connections in TIME_WAIT can be listened on but not
// bound, and is not reserved. SO_REUSEADDR does not help: other programs that set it, as most servers do, could bind the same port.
func bindPort(ctx context.Context, port int) (io.Closer, error) {
	fd, err := bindSocket(syscall.AF_INET6, &syscall.SockaddrInet6{Port: port})
	if errors.Is(err, syscall.EAFNOSUPPORT) || errors.Is(err, syscall.EADDRNOTAVAIL) { // no IPv6 here
		fd, err = bindSocket(syscall.AF_INET, &syscall.SockaddrInet4{Port: port})
	}
	if err == nil {
		return fd, nil
	}
	return checkPort(ctx, port)
}

func bindSocket(family int, addr syscall.Sockaddr) (boundPort, error) {
	syscall.ForkLock.RLock()
	fd, err := syscall.Socket(family, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return 0, os.NewSyscallError("socket", err)
	}
	if family == syscall.AF_INET6 {
		err = syscall.SetsockoptInt(fd, syscall.IPPROTO_IPV6, syscall.IPV6_V6ONLY, 0)
	}
	if err == nil {
		err = syscall.Bind(fd, addr)
	}
	if err != nil {
		_ = syscall.Close(fd)
		return 0, os.NewSyscallError("bind", err)
	}
	return boundPort(fd), nil
}
