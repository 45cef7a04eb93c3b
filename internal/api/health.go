package api

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/rest"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/store"
)

func (s *server) healthRoutes() {
	rest.Handle(s.router, rest.Route{ID: "healthz", Method: http.MethodGet, Path: "/healthz", Tag: "health", Public: true,
		Summary: "Check that the process answers"}, s.healthz)
	rest.Handle(s.router, rest.Route{ID: "readyz", Method: http.MethodGet, Path: "/readyz", Tag: "health", Public: true,
		Summary: "Check that the server can work: engine and store answer"}, s.readyz)
}

type health struct {
	Status string `json:"status" enum:"ok"`
}

type readiness struct {
	Status   string         `json:"status" enum:"ok"`
	Gateways []wire.Gateway `json:"gateways,omitempty" doc:"gateways to other systems; a failing gateway does not make the server unready"`
}

func (s *server) healthz(context.Context, *struct{}) (*rest.Response[health], error) {
	return rest.Respond(health{Status: "ok"}), nil
}

// readyz reads the store at most once a second, because it needs no key.
func (s *server) readyz(ctx context.Context, _ *struct{}) (*rest.Response[readiness], error) {
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
	return rest.Respond(ready), nil
}

const (
	gatewayOK          = "ok"
	gatewayUnavailable = "unavailable: see the server's log"
)

// gateways returns the state of the gateways. The reason of a failure may reveal details of the network, so that only
// callers who may read metrics get it.
func (s *server) gateways(ctx context.Context) []wire.Gateway {
	list := s.Gateways()
	if !slices.ContainsFunc(list, func(g wire.Gateway) bool { return g.Status != gatewayOK }) {
		return list
	}
	if r := rest.RequestOf(ctx); r != nil {
		if p, _, err := s.access.Identify(r, true); err == nil && auth.Can(p, auth.ReadMetrics, auth.Object{}) == nil {
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
	storeCheckTTL     = time.Second     // how long a result is cached
	storeCheckTimeout = 5 * time.Second // of one check
)

// storeHealth caches whether the store answers.
type storeHealth struct {
	keys store.KeyStore

	checking  sync.Mutex // held during a check
	mu        sync.Mutex
	checkedAt time.Time // of the last result; zero before the first one
	err       error
}

// check returns the last result, and checks again if that is too old and no check is running.
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
	// A client that leaves must not make the store look broken to others.
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

// staleResult returns the last result during a check, unless the check takes too long.
func (h *storeHealth) staleResult(at time.Time, err error) error {
	if since := time.Since(at); err == nil && since > storeCheckTTL+storeCheckTimeout {
		return muster.Errorf(muster.Unavailable, "the last answer was %s ago", since.Round(time.Second))
	}
	return err
}
