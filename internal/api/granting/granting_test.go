package granting

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-dev/muster/internal/store"
)

// slowGrants keeps grants in memory; a commit takes a second.
type slowGrants struct {
	store.GrantStore

	mu      sync.Mutex
	granted map[store.Blob]store.Grantee
	largest int
	commits int
	panics  bool // the next commit
}

func (s *slowGrants) GrantBlobs(ctx context.Context, holders []store.Grantee, blobs []store.Blob) error {
	time.Sleep(time.Second) // of the bubble
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.panics {
		s.panics = false
		panic("a broken store")
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	s.commits++
	s.largest = max(s.largest, len(blobs))
	for i, b := range blobs {
		if b.SHA256 != string(holders[i]) {
			return fmt.Errorf("blob %s for %s", b.SHA256, holders[i])
		}
		s.granted[b] = holders[i]
	}
	return nil
}

// grantOne grants n blobs to a holder of the same name.
func (g *Granter) grantOne(ctx context.Context, name string, n int) error {
	blobs := make([]store.Blob, n)
	for i := range blobs {
		blobs[i] = store.Blob{SHA256: name, Size: int64(i)}
	}
	return g.Grant(ctx, store.Grantee(name), blobs...)
}

// Each call returns after the commit of its own batch, even if many others arrive.
func TestGrantWaitsOnlyForItsBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slowGrants{granted: map[store.Blob]store.Grantee{}}
		g := &Granter{store: s}
		var calls sync.WaitGroup
		for i := range 600 { // during a minute
			calls.Go(func() {
				start := time.Now()
				if err := g.grantOne(t.Context(), strconv.Itoa(i), 1); err != nil {
					t.Error(err)
				}
				if took := time.Since(start); took > 2*time.Second {
					t.Errorf("call %d waited for %s", i, took)
				}
			})
			time.Sleep(100 * time.Millisecond)
		}
		calls.Wait()
		if len(s.granted) != 600 || s.commits > 70 {
			t.Errorf("%d grants in %d commits", len(s.granted), s.commits)
		}
	})
}

// Callers that leave at any time do not affect the grants of others; batches are limited.
func TestGrantsSurviveCancelledCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slowGrants{granted: map[store.Blob]store.Grantee{}}
		g := &Granter{store: s}
		rng := rand.New(rand.NewPCG(1, 2))
		var calls sync.WaitGroup
		kept := 0
		for i := range 2000 {
			ctx, n := t.Context(), 1+rng.IntN(maxBatch/10)
			cancelled := rng.IntN(10) > 0
			if cancelled {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, time.Duration(rng.IntN(3000))*time.Millisecond)
				defer cancel()
			} else {
				kept++
			}
			calls.Go(func() {
				err := g.grantOne(ctx, strconv.Itoa(i), n)
				s.mu.Lock()
				defer s.mu.Unlock()
				_, granted := s.granted[store.Blob{SHA256: strconv.Itoa(i), Size: int64(n) - 1}]
				if !cancelled && err != nil || err == nil && !granted {
					t.Errorf("call %d, cancelled %t: %v, granted: %t", i, cancelled, err, granted)
				}
			})
			if rng.IntN(20) == 0 {
				time.Sleep(time.Duration(rng.IntN(4000)) * time.Millisecond)
			}
		}
		calls.Wait()
		if kept == 0 || s.largest > maxBatch || s.largest < maxBatch/2 {
			t.Errorf("%d calls stayed; the biggest batch has %d grants", kept, s.largest)
		}
		if g.committing || len(g.queue) > 0 {
			t.Error("a batch remains")
		}
		// A call with more grants than a batch has its own batch.
		if err := g.grantOne(t.Context(), "many", 3*maxBatch); err != nil {
			t.Error(err)
		}
	})
}

// A store that panics fails its batch, but not later ones.
func TestGrantsAfterAPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slowGrants{granted: map[store.Blob]store.Grantee{}, panics: true}
		g := &Granter{store: s}
		func() {
			defer func() { _ = recover() }()
			_ = g.grantOne(t.Context(), "a", 1)
		}()
		if err := g.grantOne(t.Context(), "b", 1); err != nil {
			t.Error(err)
		}
	})
}
