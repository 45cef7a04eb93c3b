package api

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/store"
)

func (s *server) healthRoutes() {
	handle(s, route{id: "healthz", method: http.MethodGet, path: "/healthz", tag: "health", public: true,
		summary: "Say that the process answers"}, s.healthz)
	handle(s, route{id: "readyz", method: http.MethodGet, path: "/readyz", tag: "health", public: true,
		summary: "Say whether the server can do its work: engine and store answer"}, s.readyz)
}

type health struct {
	Status string `json:"status" enum:"ok"`
}

type readiness struct {
	Status   string         `json:"status" enum:"ok"`
	Gateways []wire.Gateway `json:"gateways,omitempty" doc:"to other systems: one that cannot work does not make the server unready"`
}

func (s *server) healthz(context.Context, *struct{}) (*response[health], error) {
	return respond(health{Status: "ok"}), nil
}

// readyz asks nobody but for one cheap read of the store a second, because it needs no key.
func (s *server) readyz(ctx context.Context, _ *struct{}) (*response[readiness], error) {
	if err := s.Engine.Health(); err != nil {
		return nil, err
	}
	if err := s.storeHealth.check(ctx); err != nil {
		return nil, muster.Errorf(muster.Unavailable, "the store does not answer: %w", err)
	}
	ready := readiness{Status: "ok"}
	if s.Gateways != nil {
		ready.Gateways = s.gateways(ctx)
	}
	return respond(ready), nil
}

const (
	gatewayOK          = "ok"
	gatewayUnavailable = "it cannot work now: the server's log says why"
)

// gateways says how the gateways are. Why one cannot work names what is inside the network, so only who has a key for all
// projects learns it: links to jobs and keys of workers are in the hands of others.
func (s *server) gateways(ctx context.Context) []wire.Gateway {
	list := s.Gateways()
	if !slices.ContainsFunc(list, func(g wire.Gateway) bool { return g.Status != gatewayOK }) {
		return list
	}
	if r := requestOf(ctx); r != nil {
		if p, _, err := s.identify(r); err == nil && p.Project == "" && auth.Authorize(p, auth.ReadWorkers, auth.Object{}) == nil {
			return list
		}
	}
	list = slices.Clone(list)
	for i := range list {
		if list[i].Status != gatewayOK {
			list[i].Status = gatewayUnavailable
		}
	}
	return list
}

const (
	storeCheckTTL     = time.Second     // how long one answer of the store counts
	storeCheckTimeout = 5 * time.Second // how long the store may take
)

// storeHealth remembers whether the store answers.
type storeHealth struct {
	keys store.KeyStore

	checking  sync.Mutex // held by the one who asks
	mu        sync.Mutex
	checkedAt time.Time // of the last answer; zero before the first one
	err       error
}

// check returns the store's last answer, and asks again if that is too old and nobody does.
func (h *storeHealth) check(ctx context.Context) error {
	at, err := h.lastResult()
	if time.Since(at) < storeCheckTTL {
		return err
	}
	if at.IsZero() {
		h.checking.Lock()
	} else if !h.checking.TryLock() {
		return h.staleResult(at, err)
	}
	defer h.checking.Unlock()
	if at, err := h.lastResult(); time.Since(at) < storeCheckTTL {
		return err
	}
	// A caller who leaves does not make the store look broken to others.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeCheckTimeout)
	defer cancel()
	_, err = h.keys.KeyByHash(ctx, "")
	if muster.CodeOf(err) == muster.NotFound {
		err = nil
	}
	h.mu.Lock()
	h.checkedAt, h.err = time.Now(), err
	h.mu.Unlock()
	return err
}

func (h *storeHealth) lastResult() (time.Time, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.checkedAt, h.err
}

// staleResult is the answer while the store is asked again: the last one, unless that takes too long.
func (h *storeHealth) staleResult(at time.Time, err error) error {
	if since := time.Since(at); err == nil && since > storeCheckTTL+storeCheckTimeout {
		return muster.Errorf(muster.Unavailable, "it was last heard from %s ago", since.Round(time.Second))
	}
	return err
}
