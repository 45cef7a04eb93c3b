package client

import (
	"context"
	"math/rand/v2"
	"time"
)

const (
	backoffFirst = 100 * time.Millisecond
	backoffMost  = 5 * time.Second
)

// backoff is a pause that doubles from try to try, spread at random so that many
// clients do not come back at once. Its zero value begins anew.
type backoff struct{ n int }

// wait pauses, or returns early with the error of ctx.
func (b *backoff) wait(ctx context.Context) error {
	most := min(backoffFirst<<min(b.n, 16), backoffMost)
	b.n++
	pause := time.NewTimer(most/2 + rand.N(most/2)) //nolint:gosec // spread, not a secret
	defer pause.Stop()
	select {
	case <-pause.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
