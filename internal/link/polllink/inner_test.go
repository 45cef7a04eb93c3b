package polllink

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/muster-dev/muster/internal/link"
)

// The request that closes a session does not restart the session's timer.
func TestCloseStopsTheTimer(t *testing.T) {
	conns := make(chan link.ServerConn, 1)
	s := NewServer(
		func(*http.Request) (link.Peer, error) { return link.Peer{Worker: "w1"}, nil },
		func(ctx context.Context, c link.ServerConn, _ link.Peer) { conns <- c; <-ctx.Done() })
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- s.Run(ctx) }()
	defer func() { cancel(); <-done }()
	post := func(op string) int {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, link.PathPoll+"?session=0123456789abcdef&op="+op, http.NoBody)
		rec := httptest.NewRecorder()
		s.ServeHTTP(rec, r)
		return rec.Code
	}
	for post("open") != http.StatusOK { // Run may not have begun
		continue
	}
	<-conns
	c := s.sessions[key{"w1", "0123456789abcdef"}]
	if code := post("close"); code != http.StatusOK {
		t.Fatalf("close was answered %d", code)
	}
	if c.expire.Stop() {
		t.Error("the timer of the closed session runs")
	}
}
