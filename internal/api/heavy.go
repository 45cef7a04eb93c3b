package api

import (
	"context"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/muster-dev/muster/internal/api/keyring"
)

const (
	// searchesAtOnce is how many searches run at the same time, and chartsAtOnce how many requests read whole logs for their points or the
	// states of a large job: each takes one processor or one reader of the store.
	searchesAtOnce = 4
	chartsAtOnce   = 3
	// explanationsAtOnce is how many requests ask the engine at the same time why a task waits or where a job would run: it asks all workers, and commits
	// nothing meanwhile.
	explanationsAtOnce = 1
	// turnWait is how long a request waits for its turn.
	turnWait = 10 * time.Second
)

// turns bounds what reads much, in all and by key.
type turns struct {
	running *semaphore.Weighted
	key     func(*keyring.Grant) (leave func(), err error)
	busy    string // the error of one that waited in vain
}

// newTurns makes turns for so many at a time.
func newTurns(most int64, key func(*keyring.Grant) (func(), error), busy string) turns {
	return turns{semaphore.NewWeighted(most), key, busy}
}

// take waits for the turn of a request. leave must be called.
func (t *turns) take(ctx context.Context) (leave func(), err error) {
	left, err := t.key(grantOf(ctx))
	if err != nil {
		return nil, tooManyError{err}
	}
	waiting, cancel := context.WithTimeout(ctx, turnWait)
	defer cancel()
	if err := t.running.Acquire(waiting, 1); err != nil {
		left()
		return nil, tooMany("%s", t.busy)
	}
	return func() {
		t.running.Release(1)
		left()
	}, nil
}
