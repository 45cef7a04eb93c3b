//go:build !linux

package shim

import (
	"context"
	"net"
	"os"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
)

// fileConn passes no descriptors on this system.
type fileConn struct{ net.Conn }

func (c *fileConn) take() []*os.File { return nil }

func (c *fileConn) close() {}

// exec is not supported on this system: the worker says so to the server.
func (*Client) exec(context.Context, *shimConn, muster.AttemptID, *run.ExecSpec) (run.ExecProc, error) {
	return nil, &run.ExecError{Message: "commands in tasks need a worker on Linux"}
}
