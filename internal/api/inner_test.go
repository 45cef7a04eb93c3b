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
	"github.com/muster-dev/muster/internal/sched/explain"
	"github.com/muster-dev/muster/internal/store"
)

// What follows on an attempt's output depends on how the attempt stands, and on
// how much of its log is here.
func TestAfter(t *testing.T) {
	running := standing{state: muster.Running, last: 1}
	done := standing{state: muster.Succeeded, last: 1, ended: true, size: 100}
	retried := standing{state: muster.Running, last: 2, ended: true, size: 100}
	waitsForRetry := standing{state: muster.Queued, last: 1, ended: true, size: 100}
	lost := standing{state: muster.Running, last: 2, ended: true, lost: true}
	long, short := 2*lateLog, time.Duration(0)
	end, next := &step{end: true}, &step{}
	tests := []struct {
		name   string
		st     standing
		offset int64
		quiet  time.Duration
		follow bool
		fixed  bool
		want   *step
	}{
		{"it runs", running, 100, long, true, false, nil},
		{"it runs, and nobody follows", running, 100, short, false, false, end},
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
		f := &follower{place: logPlace{attempt: 1, offset: tt.offset}, moved: time.Now().Add(-tt.quiet), follow: tt.follow, fixed: tt.fixed}
		got := f.after(tt.st)
		if (got == nil) != (tt.want == nil) || got != nil && *got != *tt.want {
			t.Errorf("%s: got %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

// One key waits for its own turns and leaves turns to others, and who waits too long is refused.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		of := func(g *keyring.Grant) context.Context { return context.WithValue(t.Context(), grantKey, g) }
		greedy, other := of(&keyring.Grant{}), of(&keyring.Grant{})
		searches := newTurns(searchesAtOnce, keyring.NewBounds(0).Search, "busy")
		var leave []func()
		for range 4 {
			l, err := searches.take(greedy)
			if err != nil {
				t.Fatal(err)
			}
			leave = append(leave, l)
		}
		if _, err := searches.take(greedy); !isTooMany(err) {
			t.Errorf("one too many of a key: %v", err)
		}
		began := time.Now()
		if _, err := searches.take(other); !isTooMany(err) || time.Since(began) != turnWait {
			t.Errorf("one that waited for %s: %v", time.Since(began), err)
		}
		time.AfterFunc(time.Second, leave[0])
		l, err := searches.take(other)
		if err != nil {
			t.Fatal(err)
		}
		leave[0] = l
		for _, l := range leave {
			l()
		}
		for range 4 {
			if _, err := searches.take(greedy); err != nil {
				t.Error(err)
			}
		}
	})
}

// askedEngine counts how often it is asked for explanations, each of which takes a while.
type askedEngine struct {
	Engine

	asked, now, most int
}

func (e *askedEngine) Explain(_ context.Context, id muster.TaskID) (explain.Explanation, error) {
	e.asked++
	e.now++
	e.most = max(e.most, e.now)
	time.Sleep(10 * time.Millisecond)
	e.now--
	return explain.Explanation{Task: id}, nil
}

// The engine is asked for one explanation at a time, and for that of a task once a second at most.
func TestExplanationsCostTheEngineLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &askedEngine{}
		s := &server{Config: Config{Engine: e}, explaining: newTurns(explanationsAtOnce, keyring.NewBounds(0).Explanation, "busy"), explained: cache.NewValues[explainedKey, explain.Explanation](10)}
		all := func(tasks ...muster.Task) {
			var viewers sync.WaitGroup
			for _, task := range tasks {
				for range 10 {
					viewers.Go(func() {
						ctx := context.WithValue(t.Context(), grantKey, &keyring.Grant{})
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
		if e.asked != 2 || e.most != 1 {
			t.Errorf("two tasks: the engine was asked %d times, %d at once", e.asked, e.most)
		}
		runs := waits
		runs.State, runs.Attempt = muster.Running, 1
		if all(runs); e.asked != 3 {
			t.Errorf("a task that has started: the engine was asked %d times", e.asked)
		}
		time.Sleep(explainedAge)
		if all(waits); e.asked != 4 {
			t.Errorf("a second later: the engine was asked %d times", e.asked)
		}
	})
}

func isTooMany(err error) bool {
	_, ok := errors.AsType[tooManyError](err)
	return ok
}

func FuzzParsePlace(f *testing.F) {
	for _, s := range []string{"", "-", "1-16", "1", "-1-2", "1--2", "99999999999-1", "1-99999999999999999999"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		attempt, offset, err := parsePlace(s)
		if err != nil {
			return
		}
		if attempt < 0 || offset < 0 {
			t.Errorf("%q is attempt %d, offset %d", s, attempt, offset)
		}
		again, at, err := parsePlace(logPlace{attempt: attempt, offset: offset}.String())
		if err != nil || again != attempt || at != offset {
			t.Errorf("%q became %d, %d and then %d, %d, %v", s, attempt, offset, again, at, err)
		}
	})
}

// countedKeys is a store that counts lookups, and fails if it is told to.
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

// However often somebody asks whether the server is ready, the store is asked once a second.
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
