// Package faulty wraps a store and injects failures, for tests.
package faulty

import (
	"context"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/backoff"
	"github.com/muster-dev/muster/internal/store"
)

// Writer is a store.Writer that fails or delays commits on demand. A failed commit
// does not reach the real store.
type Writer struct {
	inner store.Writer

	mu      sync.Mutex
	commits int
	failAt  int
	err     error
	delay   time.Duration
}

var _ store.Writer = (*Writer)(nil)

// New wraps w.
func New(w store.Writer) *Writer { return &Writer{inner: w} }

// FailCommit makes the nth commit from now fail, once; the next one is 1.
func (w *Writer) FailCommit(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failAt = w.commits + n
}

// SetError makes every commit and load fail with err until ClearError.
func (w *Writer) SetError(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = err
}

// ClearError ends the effect of SetError.
func (w *Writer) ClearError() { w.SetError(nil) }

// Delay makes every commit wait d first, or until its context ends.
func (w *Writer) Delay(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.delay = d
}

// Commits returns how many commits were tried.
func (w *Writer) Commits() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.commits
}

// Load implements store.Writer.
func (w *Writer) Load(ctx context.Context) (muster.Snapshot, error) {
	w.mu.Lock()
	err := w.err
	w.mu.Unlock()
	if err != nil {
		return muster.Snapshot{}, err
	}
	return w.inner.Load(ctx)
}

// Commit implements store.Writer.
func (w *Writer) Commit(ctx context.Context, b *store.Batch) error {
	delay, err := w.next()
	if delay > 0 && backoff.Sleep(ctx, delay) != nil {
		return muster.Errorf(muster.Unavailable, "the delayed commit was cancelled: %w", context.Cause(ctx))
	}
	if err != nil {
		return err
	}
	return w.inner.Commit(ctx, b)
}

func (w *Writer) next() (time.Duration, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.commits++
	switch {
	case w.err != nil:
		return w.delay, w.err
	case w.commits == w.failAt:
		return w.delay, muster.Errorf(muster.Unavailable, "commit %d fails on demand", w.commits)
	default:
		return w.delay, nil
	}
}
