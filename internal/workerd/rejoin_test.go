package workerd

import (
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent"
	"github.com/muster-dev/muster/internal/handshake"
	"github.com/muster-dev/muster/internal/link"
)

// TestRejoin checks that the state of the old identity is removed before there is a new one, and that a server that refuses a new identity is
// not asked for another one at once.
func TestRejoin(t *testing.T) {
	t.Parallel()
	var joins atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		joins.Add(1)
		if err := json.NewEncoder(w).Encode(link.Joined{Worker: "w1", Server: handshake.ServerID(make([]byte, ed25519.PublicKeySize))}); err != nil {
			t.Error(err)
		}
	}))
	defer s.Close()
	at, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	data := t.TempDir()
	first, err := agent.Join(t.Context(), s.Client(), at, "token", agent.Registration{Name: "box"}, data, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	w := &Worker{cfg: Config{Data: data, Token: "token"}, server: at, http: s.Client(), log: slog.New(slog.DiscardHandler), detach: make(chan struct{})}
	refused := muster.Errorf(muster.Unauthenticated, "%w", agent.ErrUnknownWorker)
	kept := errors.New("the disk is full")
	forgotten := 0
	rejoin := func(when string, forgets, wants error, asks int64) {
		t.Helper()
		joins.Store(0)
		err := w.rejoin(t.Context(), refused, first, "box", func() error {
			forgotten++
			if id, ok, err := agent.LoadIdentity(data); id != first || !ok || err != nil {
				t.Errorf("%s: when the old identity's tasks are forgotten there is %v, %t, %v", when, id, ok, err)
			}
			return forgets
		})
		if !errors.Is(err, wants) || errors.Is(err, errRejoined) != errors.Is(wants, errRejoined) || joins.Load() != asks {
			t.Errorf("%s: %v after %d requests, want %v after %d", when, err, joins.Load(), wants, asks)
		}
	}
	rejoin("if nothing can be forgotten", kept, kept, 1)
	rejoin("the first time", nil, errRejoined, 1)
	if forgotten != 2 {
		t.Errorf("the old identity's tasks were forgotten %d times, want 2", forgotten)
	}
	second, ok, err := agent.LoadIdentity(data)
	if err != nil || !ok || second == first {
		t.Errorf("the new identity is %v, %t, %v", second, ok, err)
	}
	first = second
	rejoin("at once", nil, agent.ErrUnknownWorker, 0)
	w.rejoined = time.Now().Add(-rejoinEvery)
	rejoin("after a while", nil, errRejoined, 1)
	w.cfg.Token, w.rejoined = "", time.Time{}
	rejoin("without a token", nil, agent.ErrUnknownWorker, 0)
}
