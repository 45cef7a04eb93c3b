//go:build !unix

package agent

import (
	"context"
	"io"
)

// bindPort holds that a TCP port can be had now. Nothing keeps it free here.
func bindPort(ctx context.Context, port int) (io.Closer, error) { return checkPort(ctx, port) }
