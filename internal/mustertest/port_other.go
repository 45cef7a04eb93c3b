//go:build unix && !linux

package mustertest

import (
	"net"
	"testing"

	"github.com/muster-dev/muster/internal/testkit"
)

// ReservePort returns a port of loopback that is free now.
func ReservePort(tb testing.TB) (addr string) {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.NoError(tb, err)
	defer l.Close()
	return l.Addr().String()
}
