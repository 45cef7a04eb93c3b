package api

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/auth"
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

// slowKeys answers a lookup only after a revocation has passed it.
type slowKeys struct {
	store.Keys
	asked, revoked chan struct{}
}

func (k *slowKeys) KeyByHash(context.Context, string) (store.Key, error) {
	close(k.asked)
	<-k.revoked
	return store.Key{ID: "k1", Role: string(auth.Viewer)}, nil
}

func (k *slowKeys) DeleteKey(context.Context, string) error { return nil }

// A key that was read before it was revoked is not remembered after it.
func TestRevocationOvertakesLookup(t *testing.T) {
	slow := &slowKeys{asked: make(chan struct{}), revoked: make(chan struct{})}
	k := newKeyring(slow)
	var lookup sync.WaitGroup
	lookup.Go(func() {
		if _, err := k.principal(t.Context(), "token"); err != nil {
			t.Errorf("the lookup that came first: %v", err)
		}
	})
	<-slow.asked
	if err := k.revoke(t.Context(), "k1"); err != nil {
		t.Fatal(err)
	}
	close(slow.revoked)
	lookup.Wait()
	if len(k.found) != 0 {
		t.Errorf("remembered: %v", k.found)
	}
}
