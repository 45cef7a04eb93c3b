package keyring

import (
	"context"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/ratelimit"
	"github.com/muster-dev/muster/internal/store"
)

// slowKeys responds to the first lookup after a concurrent revocation, and has no key after that.
type slowKeys struct {
	store.KeyStore
	lookupStarted, revokedCh chan struct{}
	lookups                  atomic.Int32
}

func (k *slowKeys) KeyByHash(context.Context, string) (store.Key, error) {
	if k.lookups.Add(1) > 1 {
		return store.Key{}, muster.Errorf(muster.NotFound, "no such key")
	}
	close(k.lookupStarted)
	<-k.revokedCh
	return store.Key{ID: "k1", Role: string(auth.Viewer)}, nil
}

func (k *slowKeys) DeleteKey(context.Context, string) error { return nil }

// A key that was read before its revocation is neither accepted nor cached after it.
func TestRevocationDuringLookup(t *testing.T) {
	slow := &slowKeys{lookupStarted: make(chan struct{}), revokedCh: make(chan struct{})}
	k := New(slow, nil, nil, slog.New(slog.DiscardHandler))
	var lookup sync.WaitGroup
	lookup.Go(func() {
		if _, _, err := k.Authenticate(t.Context(), netip.Addr{}, "token"); muster.CodeOf(err) != muster.Unauthenticated {
			t.Errorf("the first lookup: %v", err)
		}
	})
	<-slow.lookupStarted
	if err := k.Revoke(t.Context(), store.Key{ID: "k1", Name: "ci"}); err != nil {
		t.Fatal(err)
	}
	close(slow.revokedCh)
	lookup.Wait()
	if len(k.cache) != 0 || len(k.active) != 0 {
		t.Errorf("cached: %v, %v", k.cache, k.active)
	}
}

// oneKey is a store of one key.
type oneKey struct {
	store.KeyStore
	key store.Key
}

func (k oneKey) KeyByHash(context.Context, string) (store.Key, error) { return k.key, nil }
func (k oneKey) DeleteKey(context.Context, string) error              { return nil }

// Requests of a key end with it, with the reason as their cause.
func TestGrantsExpireWithTheirKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			end  func(*Ring)
			want string
		}{
			"revoked": {func(k *Ring) { _ = k.Revoke(t.Context(), store.Key{ID: "k1", Name: "ci"}) }, "was revoked"},
			"expired": {func(*Ring) { time.Sleep(time.Hour) }, "expired at"},
		} {
			k := New(oneKey{key: store.Key{ID: "k1", Name: "ci", Role: string(auth.Viewer), ExpiresAt: muster.NewTime(time.Now()).Add(muster.Duration(time.Hour))}}, nil, nil, slog.New(slog.DiscardHandler))
			_, g, err := k.Authenticate(t.Context(), netip.Addr{}, "token")
			if err != nil {
				t.Fatal(err)
			}
			ctx, release := g.Bind(t.Context())
			if ctx.Err() != nil {
				t.Errorf("%s: a request ended before its key", name)
			}
			c.end(k)
			synctest.Wait()
			if cause := context.Cause(ctx); muster.CodeOf(cause) != muster.Unauthenticated || !strings.Contains(cause.Error(), c.want) {
				t.Errorf("%s: the cause is %v", name, cause)
			}
			if len(k.active) != 0 {
				t.Errorf("%s: the active key is kept", name)
			}
			release()
		}
	})
}

// useStore is a store of one key, which records the uses that are stored.
type useStore struct {
	oneKey

	stored chan []store.KeyUse
	full   atomic.Bool
}

func (s *useStore) TouchKeys(_ context.Context, uses []store.KeyUse) error {
	if s.full.Load() {
		return muster.Errorf(muster.StorageFull, "the disk is full")
	}
	s.stored <- uses
	return nil
}

// Uses are stored once a minute and at the end: no request waits for it, and a failure is made good later.
func TestUsesAreStoredOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &useStore{oneKey: oneKey{key: store.Key{ID: "k1", Name: "ci", Role: string(auth.Viewer), Hash: "h"}}, stored: make(chan []store.KeyUse, 9)}
		r := New(s, nil, nil, slog.New(slog.DiscardHandler))
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = r.Run(ctx) })
		begin := time.Now()
		at := func(d time.Duration) muster.Time { return muster.NewTime(begin.Add(d)) }
		request := func(from string) *ActiveKey {
			t.Helper()
			_, k, err := r.Authenticate(t.Context(), netip.MustParseAddr(from), "token")
			if err != nil {
				t.Fatal(err)
			}
			return k
		}
		want := func(what string, uses ...store.KeyUse) {
			t.Helper()
			for _, u := range uses {
				select {
				case got := <-s.stored:
					if len(got) != 1 || got[0] != u {
						t.Errorf("%s: stored %+v, want %+v", what, got, u)
					}
				default:
					t.Errorf("%s: nothing is stored", what)
				}
			}
			if n := len(s.stored); n != 0 {
				t.Errorf("%s: stored %d times more", what, n)
			}
		}
		for range 1_000 {
			request("10.0.0.1")
		}
		time.Sleep(30 * time.Second)
		request("10.0.0.2")
		want("within a minute")
		if last, from := r.LastUse(&store.Key{ID: "k1"}); last != at(30*time.Second) || from != "10.0.0.2" {
			t.Errorf("the last use is %s from %s", last, from)
		}
		time.Sleep(30*time.Second + 1)
		want("after a minute", store.KeyUse{Hash: "h", At: at(30 * time.Second), From: "10.0.0.2"})
		time.Sleep(10 * time.Minute)
		want("without uses")

		s.full.Store(true)
		request("10.0.0.3")
		time.Sleep(time.Minute)
		s.full.Store(false)
		time.Sleep(time.Minute)
		want("after a failure", store.KeyUse{Hash: "h", At: at(11 * time.Minute), From: "10.0.0.3"})

		k := request("10.0.0.4") // a stream, which is used until it ends
		_, release := k.Bind(t.Context())
		time.Sleep(time.Minute)
		want("of a stream that began", store.KeyUse{Hash: "h", At: at(13 * time.Minute), From: "10.0.0.4"})
		time.Sleep(5 * time.Minute)
		want("of a stream that lasts")
		release()
		stop()
		running.Wait()
		want("at the end", store.KeyUse{Hash: "h", At: at(19 * time.Minute), From: "10.0.0.4"})
	})
}

// BenchmarkAuthenticate measures what each request costs with a key that is in use.
func BenchmarkAuthenticate(b *testing.B) {
	r := New(oneKey{key: store.Key{ID: "k1", Name: "ci", Role: string(auth.Viewer)}}, nil, nil, slog.New(slog.DiscardHandler))
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := r.Authenticate(b.Context(), netip.AddrFrom4([4]byte{10, 0, 0, 1}), "mst_viewer_abcdefghabcdefghabcdefghabcdefgh"); err != nil {
			b.Fatal(err)
		}
	}
}

// The worker of a key that no longer expires stays connected.
func TestExtendedKeysDoNotExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys := &oneKey{key: store.Key{ID: "k1", Name: "rig", Role: string(auth.Worker), Worker: "w1", Approval: true, ExpiresAt: muster.NewTime(time.Now()).Add(muster.Duration(time.Hour))}}
		ring := New(keys, nil, nil, slog.New(slog.DiscardHandler))
		p, active, err := ring.Authenticate(t.Context(), netip.Addr{}, "token")
		if err != nil || !p.Pending {
			t.Fatalf("%+v, %v", p, err)
		}
		ctx, release := active.Bind(t.Context())
		defer release()
		keys.key.Approval, keys.key.ExpiresAt = false, 0
		ring.Extended("k1")
		if p, _, err := ring.Authenticate(t.Context(), netip.Addr{}, "token"); err != nil || p.Pending {
			t.Errorf("the approved worker is %+v, %v", p, err)
		}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if ctx.Err() != nil {
			t.Errorf("the session ended: %v", context.Cause(ctx))
		}
	})
}

// failingQuarantine is oneKey that cannot store a quarantine.
type failingQuarantine struct{ oneKey }

func (failingQuarantine) QuarantineKeys(context.Context, muster.WorkerID, string) error {
	return muster.Errorf(muster.StorageFull, "the disk is full")
}

// A worker is quarantined at once, also if the database does not take that.
func TestAQuarantineThatIsNotStored(t *testing.T) {
	k := New(failingQuarantine{oneKey{key: store.Key{ID: "k1", Worker: "w-1", Role: string(auth.Worker)}}}, nil, nil, slog.New(slog.DiscardHandler))
	_, g, err := k.Authenticate(t.Context(), netip.Addr{}, "token")
	if err != nil {
		t.Fatal(err)
	}
	ctx, release := g.Bind(t.Context())
	defer release()
	if err := k.Quarantine(t.Context(), "w-1", "it was copied"); muster.CodeOf(err) != muster.StorageFull {
		t.Errorf("the quarantine: %v", err)
	}
	<-ctx.Done()
	_, _, err = k.Authenticate(t.Context(), netip.Addr{}, "token")
	for name, err := range map[string]error{"what the key opened": context.Cause(ctx), "another request": err} {
		if muster.CodeOf(err) != muster.Forbidden || !strings.Contains(err.Error(), "it was copied") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// workerKeys is a store of the key of one worker, with the hash "old". It counts lookups, and finds the hash "new" as well.
type workerKeys struct {
	store.KeyStore
	lookups int
}

func (k *workerKeys) ListKeys(context.Context) ([]store.Key, error) {
	return []store.Key{{ID: "k1", Worker: "w-1", Hash: "old"}, {ID: "k2", Role: string(auth.Admin), Hash: "of a token"}}, nil
}

func (k *workerKeys) KeyByHash(_ context.Context, hash string) (store.Key, error) {
	if k.lookups++; hash == "old" || hash == "new" {
		return store.Key{ID: hash, Worker: "w-1", Role: string(auth.Worker)}, nil
	}
	return store.Key{}, muster.Errorf(muster.NotFound, "no such key")
}

// From an address beyond its limit, public keys that are not registered are refused before they are looked up. Workers are not, whether they
// joined before this server started or just now.
func TestUnknownPublicKeysBeyondTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys, from := &workerKeys{}, netip.MustParseAddr("192.0.2.1")
		limits := ratelimit.New(ratelimit.Config{PerAddress: 1}, nil)
		k := New(keys, nil, limits, slog.New(slog.DiscardHandler))
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		k.Joined("new")
		for hash, known := range map[string]bool{"old": true, "new": true, "made up": false, "of a token": false} {
			for limits.AllowAddress(gone, from) == nil { // whose refusal takes no time
			}
			keys.lookups = 0
			_, _, err := k.ByPublicKey(t.Context(), from, hash)
			if (err == nil) != known || err != nil && muster.CodeOf(err) != muster.Unavailable || (keys.lookups > 0) != known {
				t.Errorf("%s: %v, after %d lookups", hash, err, keys.lookups)
			}
		}
	})
}
