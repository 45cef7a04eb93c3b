package docker

import (
	"errors"
	"io"
	"net"
	"syscall"
)

// connClosed reports whether err means that the engine closed the connection or is not running.
func connClosed(err error) bool {
	for _, e := range []error{io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, syscall.ECONNRESET, syscall.ECONNREFUSED, syscall.EPIPE} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
