//go:build !unix

package agent

import (
	"context"
	"io"
)

// bindPort checks that a TCP port is free. It cannot reserve the port on this system.
func bindPort(ctx context.Context, port int) (io.Closer, error) { return checkPort(ctx, port) }
