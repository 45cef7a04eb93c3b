package api

import (
	"context"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/keyring"
	"github.com/muster-dev/muster/internal/api/rest"
)

const (
	// Searches and charts (requests that read whole logs or the states of a large job) each occupy a processor or a reader of the store.
	maxConcurrentSearches = 4
	maxConcurrentCharts   = 3
	// Explanations and plans block the engine's commits: it looks at all workers.
	maxConcurrentExplanations = 1
	// limiterWait is how long a request waits for a slot.
	limiterWait = 10 * time.Second
)

// limiter limits expensive requests, in total and per key.
type limiter struct {
	slots         *semaphore.Weighted
	acquireForKey func(*keyring.ActiveKey) (release func(), err error)
	busyMessage   string // error after limiterWait
}

// newLimiter returns a limiter with so many slots.
func newLimiter(limit int64, acquireForKey func(*keyring.ActiveKey) (func(), error), busyMessage string) limiter {
	return limiter{semaphore.NewWeighted(limit), acquireForKey, busyMessage}
}

// acquire waits for a slot. The caller must call release.
func (l *limiter) acquire(ctx context.Context) (release func(), err error) {
	releaseKey, err := l.acquireForKey(activeKeyOf(ctx))
	if err != nil {
		return nil, rest.TooMany(err)
	}
	waitCtx, cancel := context.WithTimeout(ctx, limiterWait)
	defer cancel()
	if err := l.slots.Acquire(waitCtx, 1); err != nil {
		releaseKey()
		return nil, rest.TooMany(muster.Errorf(muster.Unavailable, "%s", l.busyMessage))
	}
	return func() {
		l.slots.Release(1)
		releaseKey()
	}, nil
}
