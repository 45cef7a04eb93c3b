package api

import (
	"context"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/muster-dev/muster/internal/api/keyring"
)

const (
	// maxConcurrentSearches is how many searches run at the same time, and maxConcurrentCharts how many requests read whole logs for their points or the
	// states of a large job: each takes one processor or one reader of the store.
	maxConcurrentSearches = 4
	maxConcurrentCharts   = 3
	// maxConcurrentExplanations is how many requests ask the engine at the same time why a task waits or where a job would run: it asks all workers, and commits
	// nothing meanwhile.
	maxConcurrentExplanations = 1
	// limiterWait is how long a request waits for its turn.
	limiterWait = 10 * time.Second
)

// limiter bounds what reads much, in all and by key.
type limiter struct {
	slots         *semaphore.Weighted
	acquireForKey func(*keyring.ActiveKey) (release func(), err error)
	busyMessage   string // the error of one that waited in vain
}

// newLimiter makes turns for so many at a time.
func newLimiter(limit int64, acquireForKey func(*keyring.ActiveKey) (func(), error), busyMessage string) limiter {
	return limiter{semaphore.NewWeighted(limit), acquireForKey, busyMessage}
}

// acquire waits for the turn of a request. leave must be called.
func (l *limiter) acquire(ctx context.Context) (release func(), err error) {
	releaseKey, err := l.acquireForKey(activeKeyOf(ctx))
	if err != nil {
		return nil, tooManyError{err}
	}
	waitCtx, cancel := context.WithTimeout(ctx, limiterWait)
	defer cancel()
	if err := l.slots.Acquire(waitCtx, 1); err != nil {
		releaseKey()
		return nil, tooMany("%s", l.busyMessage)
	}
	return func() {
		l.slots.Release(1)
		releaseKey()
	}, nil
}
