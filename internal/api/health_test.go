package api

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/store"
)

// blockingKeys is a store that blocks until it is released.
type blockingKeys struct {
	store.KeyStore

	unblock       chan struct{}
	lookupStarted chan struct{} // holds a value for each lookup
	lookups       atomic.Int64
}

func newBlockingKeys() *blockingKeys {
	return &blockingKeys{unblock: make(chan struct{}), lookupStarted: make(chan struct{}, 1_000)}
}

func (k *blockingKeys) KeyByHash(ctx context.Context, _ string) (store.Key, error) {
	k.lookups.Add(1)
	k.lookupStarted <- struct{}{}
	select {
	case <-k.unblock:
	case <-ctx.Done():
	}
	if ctx.Err() != nil {
		return store.Key{}, context.Cause(ctx)
	}
	return store.Key{}, muster.Errorf(muster.NotFound, "no such key")
}

// Concurrent requests before the first result of the store cause one lookup.
func TestFirstReadinessCostsOneLookup(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // so that no answer grows old
		k := newBlockingKeys()
		h := storeHealth{keys: k}
		var started, all sync.WaitGroup
		started.Add(100)
		for range 100 {
			all.Go(func() {
				started.Done()
				if err := h.check(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		started.Wait()
		for range 1_000 {
			runtime.Gosched()
		}
		close(k.unblock)
		all.Wait()
		if n := k.lookups.Load(); n != 1 {
			t.Errorf("the store received %d calls", n)
		}
	})
}

// During a check, other requests get the last result at once, unless it is too old.
func TestReadinessDoesNotBlock(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		age  time.Duration
		want string // "" if the server is ready
	}{
		"an answer of just now": {storeCheckTTL, ""},
		"an old answer":         {storeCheckTTL + storeCheckTimeout + time.Second, "the last answer was"},
	} {
		k := newBlockingKeys()
		h := storeHealth{keys: k, checkedAt: time.Now().Add(-c.age)}
		var asking sync.WaitGroup
		asking.Go(func() { _ = h.check(t.Context()) })
		<-k.lookupStarted
		answer := make(chan error, 1)
		asking.Go(func() { answer <- h.check(t.Context()) })
		select {
		case err := <-answer:
			if c.want == "" && err != nil || c.want != "" && (muster.CodeOf(err) != muster.Unavailable || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%s: %v, want %q", name, err, c.want)
			}
		case <-time.After(3 * time.Second): // less than the store may take
			t.Errorf("%s: a request waits for another one's lookup", name)
		}
		close(k.unblock)
		asking.Wait()
	}
}

// A store that does not answer is not ready. A client that leaves does not affect the result.
func TestReadinessHasItsOwnTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newBlockingKeys()
		h := storeHealth{keys: k}
		cancelled, cancelNow := context.WithCancel(t.Context())
		cancelNow()
		limited, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		start := time.Now()
		if err := h.check(limited); err == nil {
			t.Error("a store that does not answer is ready")
		}
		if took := time.Since(start); took != storeCheckTimeout {
			t.Errorf("the check took %s", took)
		}
		close(k.unblock)
		time.Sleep(storeCheckTTL)
		if err := h.check(cancelled); err != nil {
			t.Errorf("a disconnected client makes the store look broken: %v", err)
		}
	})
}

// unhealthyEngine is an engine with an error.
type unhealthyEngine struct {
	Engine

	err error
}

func (e unhealthyEngine) Health() error { return e.err }

// singleKeyStore is a store with one key.
type singleKeyStore struct {
	store.KeyStore

	token string
	key   store.Key
}

func (k singleKeyStore) KeyByHash(_ context.Context, hash string) (store.Key, error) {
	if hash != auth.Hash(k.token) {
		return store.Key{}, muster.Errorf(muster.NotFound, "no such key")
	}
	return k.key, nil
}

// Only requests with a valid key for workers and all projects get the reason why a gateway cannot work.
func TestGatewaysInReadiness(t *testing.T) {
	t.Parallel()
	list := []wire.Gateway{{Name: "qubix", Status: "ok"}, {Name: "mloc", Status: "Redis at 10.0.0.5:6379 does not answer"}}
	for _, key := range []store.Key{
		{Role: string(auth.Viewer), Project: "vision"}, {Role: string(auth.Viewer), Project: "vision", Job: 7}, {Role: string(auth.Worker), Worker: "w-1"}, {Role: string(auth.Join)},
	} {
		checkGatewayStatus(t, list, key, map[string]string{"mst_right": gatewayUnavailable})
	}
	checkGatewayStatus(t, list, store.Key{Role: string(auth.Viewer)}, map[string]string{"": gatewayUnavailable, "mst_wrong": gatewayUnavailable, "mst_right": list[1].Status})
}

// checkGatewayStatus requests the readiness with each token, of which mst_right is valid, and checks the status of the second gateway.
func checkGatewayStatus(t *testing.T, list []wire.Gateway, key store.Key, wants map[string]string) {
	t.Helper()
	key.ID = "k1"
	h := New(Config{Engine: unhealthyEngine{}, Keys: singleKeyStore{token: "mst_right", key: key}, Log: slog.New(slog.DiscardHandler), LinkSocket: http.NotFoundHandler(), LinkPoll: http.NotFoundHandler(), Gateways: func() []wire.Gateway { return list }})
	for token, want := range wants {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/readyz", http.NoBody)
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		var got readiness
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != http.StatusOK {
			t.Fatalf("it answers %d %s", w.Code, w.Body)
		}
		if len(got.Gateways) != 2 || got.Gateways[0] != list[0] || got.Gateways[1].Status != want {
			t.Errorf("with the key %q the answer is %s", token, w.Body)
		}
	}
}

// A server is ready if its engine and its store work.
func TestReadinessRequiresEngineAndStore(t *testing.T) {
	t.Parallel()
	stuck := muster.Errorf(muster.Unavailable, "the engine is loading its state")
	broken := muster.Errorf(muster.Internal, "the disk is gone")
	for name, c := range map[string]struct{ engine, store error }{"both are well": {}, "the engine is not": {engine: stuck}, "the store is not": {store: broken}} {
		s := &server{Config: Config{Engine: unhealthyEngine{err: c.engine}}, storeHealth: storeHealth{keys: &countedKeys{err: c.store}}}
		_, err := s.readyz(t.Context(), nil)
		if ready := c.engine == nil && c.store == nil; ready && err != nil || !ready && muster.CodeOf(err) != muster.Unavailable {
			t.Errorf("%s: %v", name, err)
		}
	}
}
