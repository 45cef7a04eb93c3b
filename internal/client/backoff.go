package client

import (
	"context"
	"math/rand/v2"
	"time"
)

const (
	backoffMin = 100 * time.Millisecond
	backoffMax = 5 * time.Second
)

// backoff is a pause that doubles from try to try, spread at random so that many
// clients do not come back at once. Its zero value begins anew.
type backoff struct{ n int }

// wait pauses, or returns early with the error of ctx.
func (b *backoff) wait(ctx context.Context) error {
	limit := min(backoffMin<<min(b.n, 16), backoffMax)
	b.n++
	timer := time.NewTimer(limit/2 + rand.N(limit/2)) //nolint:gosec // spread, not a secret
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
