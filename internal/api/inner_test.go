package api

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
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

// slowKeys answers the first lookup only after a revocation has passed it, and knows no key after that.
type slowKeys struct {
	store.Keys
	asked, revoked chan struct{}
	lookups        atomic.Int32
}

func (k *slowKeys) KeyByHash(context.Context, string) (store.Key, error) {
	if k.lookups.Add(1) > 1 {
		return store.Key{}, muster.Errorf(muster.NotFound, "no such key")
	}
	close(k.asked)
	<-k.revoked
	return store.Key{ID: "k1", Role: string(auth.Viewer)}, nil
}

func (k *slowKeys) DeleteKey(context.Context, string) error { return nil }

// A key that was read before it was revoked is neither let in nor remembered after it.
func TestRevocationOvertakesLookup(t *testing.T) {
	slow := &slowKeys{asked: make(chan struct{}), revoked: make(chan struct{})}
	k := newKeyring(slow)
	var lookup sync.WaitGroup
	lookup.Go(func() {
		if _, _, err := k.principal(t.Context(), "token"); muster.CodeOf(err) != muster.Unauthenticated {
			t.Errorf("the lookup that came first: %v", err)
		}
	})
	<-slow.asked
	if err := k.revoke(t.Context(), store.Key{ID: "k1", Name: "ci"}); err != nil {
		t.Fatal(err)
	}
	close(slow.revoked)
	lookup.Wait()
	if len(k.found) != 0 || len(k.grants) != 0 {
		t.Errorf("remembered: %v, %v", k.found, k.grants)
	}
}

// oneKey is a store of one key.
type oneKey struct {
	store.Keys
	key store.Key
}

func (k oneKey) KeyByHash(context.Context, string) (store.Key, error) { return k.key, nil }
func (k oneKey) DeleteKey(context.Context, string) error              { return nil }

// What a key opened ends with it, and says why.
func TestGrantsEndWithTheirKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			end  func(*keyring)
			want string
		}{
			"revoked": {func(k *keyring) { _ = k.revoke(t.Context(), store.Key{ID: "k1", Name: "ci"}) }, "was revoked"},
			"expired": {func(*keyring) { time.Sleep(time.Hour) }, "ended at"},
		} {
			k := newKeyring(oneKey{key: store.Key{ID: "k1", Name: "ci", Role: string(auth.Viewer), ExpiresAt: muster.TimeOf(time.Now()).Add(muster.Duration(time.Hour))}})
			_, g, err := k.principal(t.Context(), "token")
			if err != nil {
				t.Fatal(err)
			}
			ctx, release := g.bind(t.Context())
			if ctx.Err() != nil {
				t.Errorf("%s: a request ended before its key", name)
			}
			c.end(k)
			synctest.Wait()
			if cause := context.Cause(ctx); muster.CodeOf(cause) != muster.Unauthenticated || !strings.Contains(cause.Error(), c.want) {
				t.Errorf("%s: the cause is %v", name, cause)
			}
			if len(k.grants) != 0 {
				t.Errorf("%s: the grant is kept", name)
			}
			release()
		}
	})
}

// countedKeys is a store that counts lookups, and fails if it is told to.
type countedKeys struct {
	store.Keys
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
