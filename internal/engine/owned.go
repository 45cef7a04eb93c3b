package engine

import (
	"context"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/muster-dev/muster"
)

// ownedAttempts remembers which attempts a session's worker was given. It remembers no refusal: an attempt that is not the
// worker's own now may be assigned to it later.
type ownedAttempts struct {
	mu  sync.Mutex
	ids map[muster.AttemptID]struct{}

	// misses bounds how many attempts that are not the worker's own are looked up in the store. Only the goroutine
	// that calls Handle waits for it, and so only the worker that ships their logs.
	misses *rate.Limiter
	warned muster.AttemptID // the last one that was not the worker's own
}

const (
	maxOwned  = 10_000                // attempts that are remembered
	missEvery = 10 * time.Millisecond // lookups of attempts that turn out not to be the worker's own
	missBurst = 1_000                 // of them are not held up
)

func newOwnedAttempts() *ownedAttempts {
	return &ownedAttempts{ids: map[muster.AttemptID]struct{}{}, misses: rate.NewLimiter(rate.Every(missEvery), missBurst)}
}

// add notes attempts that were given to the worker.
func (o *ownedAttempts) add(ids ...muster.AttemptID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, a := range ids {
		if len(o.ids) >= maxOwned {
			clear(o.ids) // the others are found in the store
		}
		o.ids[a] = struct{}{}
	}
}

func (o *ownedAttempts) has(a muster.AttemptID) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, ok := o.ids[a]
	return ok
}

// owns reports whether an attempt was given to the session's worker, at whatever
// time. An offer is on disk, and noted here, before the worker hears it.
func (s *session) owns(ctx context.Context, a muster.AttemptID) (bool, error) {
	if s.owned.has(a) {
		return true, nil
	}
	attempts, err := s.engine.cfg.Store.Attempts(ctx, a.Task)
	if err != nil && muster.CodeOf(err) != muster.NotFound {
		return false, err
	}
	if slices.ContainsFunc(attempts, func(b muster.Attempt) bool { return b.ID == a && b.Worker == s.worker }) {
		s.owned.add(a)
		return true, nil
	}
	if s.owned.warned != a {
		s.owned.warned = a
		s.warn(ctx, a, "a worker ships the log of an attempt that is not its own; it is dropped")
	}
	if err := s.owned.misses.Wait(ctx); err != nil {
		return false, err
	}
	return false, nil
}
