// Package backoff spaces out repeated attempts, such as to reach a server, so that many clients do not come back at the same moment.
package backoff

import (
	"context"
	"math/rand/v2"
	"time"
)

// The bounds of a Backoff that sets none.
const (
	DefaultMin = 100 * time.Millisecond
	DefaultMax = 15 * time.Second
)

// Backoff is a pause that grows from attempt to attempt: random between zero and a limit, which starts at Min and doubles up to Max
// ("full jitter"). The zero value is ready, with the default bounds. One goroutine uses it.
type Backoff struct {
	Min, Max time.Duration
	attempts int
}

// Next returns the next pause. It is positive.
func (b *Backoff) Next() time.Duration {
	least, most := b.Min, b.Max
	if least <= 0 {
		least = DefaultMin
	}
	if most <= 0 {
		most = DefaultMax
	}
	limit := most
	if doubled := least << b.attempts; doubled > 0 && doubled < most {
		limit = doubled
		b.attempts++
	}
	return rand.N(limit) + 1 //nolint:gosec // jitter is no secret
}

// Wait waits for the time of Next. It returns the error of ctx if that ends first.
func (b *Backoff) Wait(ctx context.Context) error { return Sleep(ctx, b.Next()) }

// Reset starts over, after an attempt that succeeded.
func (b *Backoff) Reset() { b.attempts = 0 }

// Sleep waits for d. It returns the error of ctx if that ends first.
func Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
