package transfer

import (
	"context"

	"golang.org/x/time/rate"

	"github.com/muster-dev/muster"
)

// throttle limits the rate of all transfers together. Nil means no limit.
type throttle struct {
	limit *rate.Limiter
	chunk int // the most bytes in one wait
}

const (
	maxChunk = 128 << 10
	minChunk = 512
)

func newThrottle(perSecond muster.Size) *throttle {
	if perSecond <= 0 {
		return nil
	}
	// Chunks of a quarter of a second keep the flow even, and a slow transfer does not look stalled.
	chunk := int(min(max(perSecond/4, minChunk), maxChunk))
	return &throttle{rate.NewLimiter(rate.Limit(perSecond), chunk), chunk}
}

// clip shortens p to one chunk.
func (t *throttle) clip(p []byte) []byte {
	if t == nil {
		return p
	}
	return p[:min(len(p), t.chunk)]
}

// wait waits until n more bytes, at most one chunk, may be transferred.
func (t *throttle) wait(ctx context.Context, n int) error {
	if t == nil || n == 0 {
		return nil
	}
	return t.limit.WaitN(ctx, n)
}
