//go:build !unix

package agent

import (
	"context"
	"io"
	"net"
	"strconv"
)

type noPort struct{}

func (noPort) Close() error { return nil }

// bindPort holds that a TCP port is free now. Nothing keeps it free here.
func bindPort(port int) (io.Closer, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(context.Background(), "tcp", ":"+strconv.Itoa(port))
	if err != nil {
		return nil, err
	}
	return noPort{}, l.Close()
}
