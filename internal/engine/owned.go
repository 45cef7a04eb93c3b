package engine

import (
	"context"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/muster-dev/muster"
)

// ownedAttempts caches which attempts a session's worker was assigned. It does not cache misses: an attempt may be assigned to
// the worker later.
type ownedAttempts struct {
	mu  sync.Mutex
	ids map[muster.AttemptID]struct{}

	// misses limits the lookups in the store of attempts that are not the worker's. Only the goroutine that calls
	// Handle waits for it, and so only the worker that sends such logs.
	misses *rate.Limiter
	warned muster.AttemptID // the last one that was not the worker's
}

const (
	maxOwned  = 10_000                // cached attempts
	missEvery = 10 * time.Millisecond // rate of lookups of attempts that are not the worker's
	missBurst = 1_000                 // such lookups without delay
)

func newOwnedAttempts() *ownedAttempts {
	return &ownedAttempts{ids: map[muster.AttemptID]struct{}{}, misses: rate.NewLimiter(rate.Every(missEvery), missBurst)}
}

// add adds attempts that were assigned to the worker.
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

// owns reports whether an attempt was ever assigned to the session's worker. An assignment
// is committed, and added here, before it is sent.
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
		s.warn(ctx, a, "worker sent the log of an attempt that is not its own, dropping it")
	}
	if err := s.owned.misses.Wait(ctx); err != nil {
		return false, err
	}
	return false, nil
}
