package contents

import (
	"context"
	"io"

	"github.com/muster-dev/muster"
)

// until is a reader that ends with a context.
type until struct {
	ctx context.Context //nolint:containedctx // of one reading
	r   io.Reader
}

func (u until) Read(b []byte) (int, error) {
	if u.ctx.Err() != nil {
		return 0, muster.Errorf(muster.Unavailable, "the server shuts down")
	}
	return u.r.Read(b)
}
