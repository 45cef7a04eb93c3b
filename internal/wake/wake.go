// Package wake notifies a goroutine that there is something to do, once for any number of reasons.
package wake

import (
	"context"
	"time"
)

// New returns a channel for Set and Wait.
func New() chan struct{} { return make(chan struct{}, 1) }

// Set puts a token into c, which has capacity 1, unless it holds one. It never blocks.
func Set(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Wait waits for a token in c, at most for d. It returns the error of ctx if that ends first.
func Wait(ctx context.Context, c <-chan struct{}, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-c:
	case <-t.C:
	case <-ctx.Done():
	}
	return ctx.Err()
}
