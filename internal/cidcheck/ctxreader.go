package cidcheck

import (
	"context"
	"io"

	"github.com/muster-dev/muster"
)

// ctxReader is a reader that ends with a context.
type ctxReader struct {
	ctx context.Context //nolint:containedctx // of one reading
	r   io.Reader
}

func (u ctxReader) Read(b []byte) (int, error) {
	if u.ctx.Err() != nil {
		return 0, muster.Errorf(muster.Unavailable, "the server shuts down")
	}
	return u.r.Read(b)
}
