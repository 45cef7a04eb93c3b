package agent

import (
	"context"
	"io"
	"net"
	"strconv"
)

// unreservedPort is a port that was free, and is not reserved.
type unreservedPort struct{}

// Close does nothing.
func (unreservedPort) Close() error { return nil }

// checkPort checks that a TCP port is free by listening on it.
func checkPort(ctx context.Context, port int) (io.Closer, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", ":"+strconv.Itoa(port))
	if err != nil {
		return nil, err
	}
	return unreservedPort{}, l.Close()
}
