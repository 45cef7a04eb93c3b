package keyring

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
	k := New(slow)
	var lookup sync.WaitGroup
	lookup.Go(func() {
		if _, _, err := k.Authenticate(t.Context(), "token"); muster.CodeOf(err) != muster.Unauthenticated {
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
			k := New(oneKey{key: store.Key{ID: "k1", Name: "ci", Role: string(auth.Viewer), ExpiresAt: muster.NewTime(time.Now()).Add(muster.Duration(time.Hour))}})
			_, g, err := k.Authenticate(t.Context(), "token")
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

// The worker of a key that no longer expires stays connected.
func TestExtendedKeysDoNotExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys := &oneKey{key: store.Key{ID: "k1", Name: "rig", Role: string(auth.Worker), Worker: "w1", Approval: true, ExpiresAt: muster.NewTime(time.Now()).Add(muster.Duration(time.Hour))}}
		ring := New(keys)
		p, active, err := ring.Authenticate(t.Context(), "token")
		if err != nil || !p.Pending {
			t.Fatalf("%+v, %v", p, err)
		}
		ctx, release := active.Bind(t.Context())
		defer release()
		keys.key.Approval, keys.key.ExpiresAt = false, 0
		ring.Extended("k1")
		if p, _, err := ring.Authenticate(t.Context(), "token"); err != nil || p.Pending {
			t.Errorf("the approved worker is %+v, %v", p, err)
		}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if ctx.Err() != nil {
			t.Errorf("the session ended: %v", context.Cause(ctx))
		}
	})
}
