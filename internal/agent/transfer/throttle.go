package transfer

import (
	"context"

	"golang.org/x/time/rate"

	"github.com/muster-dev/muster"
)

// throttle keeps all transfers together to a number of bytes a second. A nil one
// does not.
type throttle struct {
	limit *rate.Limiter
	chunk int // bytes that move at once
}

const (
	maxChunk = 128 << 10
	minChunk = 512
)

func newThrottle(perSecond muster.Size) *throttle {
	if perSecond <= 0 {
		return nil
	}
	// Pieces of a quarter of a second keep the flow even, and keep a slow one from
	// looking like one that stands still.
	chunk := int(min(max(perSecond/4, minChunk), maxChunk))
	return &throttle{rate.NewLimiter(rate.Limit(perSecond), chunk), chunk}
}

// clip shortens p to what may move at once.
func (t *throttle) clip(p []byte) []byte {
	if t == nil {
		return p
	}
	return p[:min(len(p), t.chunk)]
}

// wait waits until n bytes more, at most a piece, may have moved.
func (t *throttle) wait(ctx context.Context, n int) error {
	if t == nil || n == 0 {
		return nil
	}
	return t.limit.WaitN(ctx, n)
}
