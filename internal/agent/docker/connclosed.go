package docker

import (
	"errors"
	"io"
	"net"
	"syscall"
)

// connClosed reports whether err says that the engine ended the connection, or is not there.
func connClosed(err error) bool {
	for _, e := range []error{io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, syscall.ECONNRESET, syscall.ECONNREFUSED, syscall.EPIPE} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
