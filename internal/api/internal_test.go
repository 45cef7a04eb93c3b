package api

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/cache"
	"github.com/muster-dev/muster/internal/api/keyring"
	"github.com/muster-dev/muster/internal/api/rest"
	"github.com/muster-dev/muster/internal/store"
)

// The step after an attempt's output depends on the state of the attempt and on how much
// of its log has arrived.
func TestNextStep(t *testing.T) {
	running := attemptState{state: muster.Running, lastAttempt: 1}
	done := attemptState{state: muster.Succeeded, lastAttempt: 1, ended: true, size: 100}
	retried := attemptState{state: muster.Running, lastAttempt: 2, ended: true, size: 100}
	waitsForRetry := attemptState{state: muster.Queued, lastAttempt: 1, ended: true, size: 100}
	lost := attemptState{state: muster.Running, lastAttempt: 2, ended: true, lost: true}
	long, short := 2*lateLogTimeout, time.Duration(0)
	end, next := &step{end: true}, &step{}
	tests := []struct {
		name   string
		st     attemptState
		offset int64
		quiet  time.Duration
		follow bool
		fixed  bool
		want   *step
	}{
		{"it runs", running, 100, long, true, false, nil},
		{"it runs, without follow", running, 100, short, false, false, end},
		{"all is here", done, 100, short, true, false, end},
		{"the rest may come", done, 99, short, true, false, nil},
		{"the rest does not come", done, 99, long, true, false, &step{end: true, truncated: true}},
		{"the next one runs", retried, 100, short, true, false, next},
		{"the next one runs, and the rest may come", retried, 99, short, true, false, nil},
		{"the next one runs, and was not asked for", retried, 100, short, true, true, end},
		{"a retry is to come", waitsForRetry, 100, short, true, false, nil},
		{"a retry is to come, and was not asked for", waitsForRetry, 100, short, true, true, end},
		{"lost", lost, 0, short, true, false, next},
	}
	for _, tt := range tests {
		f := &follower{pos: logPosition{attempt: 1, offset: tt.offset}, lastGrowth: time.Now().Add(-tt.quiet), follow: tt.follow, singleAttempt: tt.fixed}
		got := f.nextStep(tt.st)
		if (got == nil) != (tt.want == nil) || got != nil && *got != *tt.want {
			t.Errorf("%s: got %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

// The limit of one key leaves slots to others, and a request that waits too long is rejected.
func TestLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		contextWithKey := func(g *keyring.ActiveKey) context.Context { return context.WithValue(t.Context(), activeKeyCtxKey, g) }
		greedy, other := contextWithKey(&keyring.ActiveKey{}), contextWithKey(&keyring.ActiveKey{})
		searches := newLimiter(maxConcurrentSearches, keyring.NewLimits(0).AcquireSearch, "busy")
		var release []func()
		for range 4 {
			l, err := searches.acquire(greedy)
			if err != nil {
				t.Fatal(err)
			}
			release = append(release, l)
		}
		if _, err := searches.acquire(greedy); !isTooMany(err) {
			t.Errorf("one too many of a key: %v", err)
		}
		start := time.Now()
		if _, err := searches.acquire(other); !isTooMany(err) || time.Since(start) != limiterWait {
			t.Errorf("one that waited for %s: %v", time.Since(start), err)
		}
		time.AfterFunc(time.Second, release[0])
		l, err := searches.acquire(other)
		if err != nil {
			t.Fatal(err)
		}
		release[0] = l
		for _, l := range release {
			l()
		}
		for range 4 {
			if _, err := searches.acquire(greedy); err != nil {
				t.Error(err)
			}
		}
	})
}

// countingEngine counts explanations, each of which takes some time.
type countingEngine struct {
	Engine

	calls, active, maxActive int
}

func (e *countingEngine) Explain(_ context.Context, id muster.TaskID) (muster.Explanation, error) {
	e.calls++
	e.active++
	e.maxActive = max(e.maxActive, e.active)
	time.Sleep(10 * time.Millisecond)
	e.active--
	return muster.Explanation{Task: id}, nil
}

// The engine computes one explanation at a time, and that of a task at most once a second.
func TestExplanationsAreLimitedAndCached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &countingEngine{}
		s := &server{Config: Config{Engine: e}, explainLimiter: newLimiter(maxConcurrentExplanations, keyring.NewLimits(0).AcquireExplanation, "busy"), explainCache: cache.NewValues[explanationKey, muster.Explanation](10)}
		all := func(tasks ...muster.Task) {
			var viewers sync.WaitGroup
			for _, task := range tasks {
				for range 10 {
					viewers.Go(func() {
						ctx := context.WithValue(t.Context(), activeKeyCtxKey, &keyring.ActiveKey{})
						if x, err := s.explain(ctx, &task); err != nil || x.Task != task.ID {
							t.Errorf("%+v, %v", x, err)
						}
					})
				}
			}
			viewers.Wait()
		}
		waits, other := muster.Task{ID: muster.TaskID{Job: 1}, State: muster.Queued}, muster.Task{ID: muster.TaskID{Job: 2}, State: muster.Queued}
		all(waits, other)
		if e.calls != 2 || e.maxActive != 1 {
			t.Errorf("two tasks: the engine received %d requests, %d concurrent", e.calls, e.maxActive)
		}
		runs := waits
		runs.State, runs.Attempt = muster.Running, 1
		if all(runs); e.calls != 3 {
			t.Errorf("a started task: the engine received %d requests", e.calls)
		}
		time.Sleep(explanationTTL)
		if all(waits); e.calls != 4 {
			t.Errorf("a second later: the engine received %d requests", e.calls)
		}
	})
}

func isTooMany(err error) bool {
	_, ok := errors.AsType[rest.TooManyError](err)
	return ok
}

func FuzzParsePlace(f *testing.F) {
	for _, s := range []string{"", "-", "1-16", "1", "-1-2", "1--2", "99999999999-1", "1-99999999999999999999"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		attempt, offset, err := parseLogPosition(s)
		if err != nil {
			return
		}
		if attempt < 0 || offset < 0 {
			t.Errorf("%q is attempt %d, offset %d", s, attempt, offset)
		}
		again, at, err := parseLogPosition(logPosition{attempt: attempt, offset: offset}.String())
		if err != nil || again != attempt || at != offset {
			t.Errorf("%q became %d, %d and then %d, %d, %v", s, attempt, offset, again, at, err)
		}
	})
}

// countedKeys is a store that counts lookups, and returns err if it is set.
type countedKeys struct {
	store.KeyStore
	lookups int
	err     error
}

func (k *countedKeys) KeyByHash(context.Context, string) (store.Key, error) {
	k.lookups++
	if k.err != nil {
		return store.Key{}, k.err
	}
	return store.Key{}, muster.Errorf(muster.NotFound, "no such key")
}

// Any number of readiness checks causes one lookup of the store per second.
func TestReadinessCostsOneLookupASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &countedKeys{}
		h := storeHealth{keys: k}
		for second := range 3 {
			for range 1_000 {
				if err := h.check(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if k.lookups != second+1 {
				t.Errorf("%d lookups in second %d", k.lookups, second+1)
			}
			time.Sleep(time.Second)
		}
		k.err = muster.Errorf(muster.Internal, "the disk is gone")
		if err := h.check(t.Context()); err == nil {
			t.Error("a store that fails is ready")
		}
	})
}
