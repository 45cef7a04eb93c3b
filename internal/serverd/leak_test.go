package serverd_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"runtime"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent"
	"github.com/muster-dev/muster/internal/link"
	"github.com/muster-dev/muster/internal/link/polllink"
	"github.com/muster-dev/muster/internal/link/wslink"
	"github.com/muster-dev/muster/internal/serverd"
)

// awaitGoroutines waits until there are at most limit goroutines.
func awaitGoroutines(t *testing.T, phase string, limit int) {
	t.Helper()
	deadline := time.Now().Add(2 * time.Minute) // a session whose end was lost goes after a minute of silence
	for runtime.NumGoroutine() > limit {
		if time.Now().After(deadline) {
			buf := make([]byte, 1<<20)
			t.Fatalf("%s: %d goroutines remain, there were %d before:\n%s", phase, runtime.NumGoroutine(), limit, buf[:runtime.Stack(buf, true)])
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// TestSessionsDoNotLeak connects a worker repeatedly, over each transport, with takeovers,
// broken connections and goodbyes: no goroutine leaks while the server runs and after it has
// stopped.
func TestSessionsDoNotLeak(t *testing.T) {
	before := runtime.NumGoroutine()
	log := slog.New(slog.DiscardHandler)
	s, err := serverd.New(t.Context(), serverd.Config{Listen: "127.0.0.1:0", Data: t.TempDir(), JoinToken: "join-token-0123456789"}, log)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	httpServer := &http.Client{Transport: &http.Transport{}}
	at, err := url.Parse(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	id, err := agent.Join(t.Context(), httpServer, at, "join-token-0123456789", "box", dir, log)
	if err != nil {
		t.Fatal(err)
	}
	credentials := agent.NewCredentials(id, at, httpServer, dir, log)
	dialers := []link.Dialer{
		&wslink.Dialer{Server: s.URL(), Credentials: credentials, HTTP: httpServer},
		&polllink.Dialer{Server: s.URL(), Credentials: credentials, HTTP: httpServer},
	}
	connect := func(round int) link.WorkerConn {
		conn, err := dialers[round%2].Dial(t.Context())
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		hello := &link.Hello{Version: link.Version, Worker: id.Worker, Name: "box", Offer: muster.Offer{Kinds: []string{muster.KindNoop}, Resources: muster.Resources{CPUs: 1, Slots: 1}}}
		if err := conn.Send(t.Context(), &link.ToServer{Hello: hello}); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if f, err := conn.Recv(t.Context()); err != nil || f.Welcome == nil {
			t.Fatalf("round %d: %+v, %v", round, f, err)
		}
		return conn
	}
	cycle := func(rounds int) {
		for round := range rounds {
			first := connect(round)
			second := connect(round / 2) // takes over
			if round%3 == 0 {
				if err := second.Send(t.Context(), &link.ToServer{Goodbye: &link.Goodbye{}}); err != nil {
					t.Fatal(err)
				}
			}
			for _, c := range []link.WorkerConn{first, second} {
				_ = c.Close() // the server may have been faster
			}
		}
		httpServer.CloseIdleConnections()
	}
	cycle(4)
	awaitGoroutines(t, "after the first sessions", before+30)
	running := runtime.NumGoroutine()
	cycle(100)
	awaitGoroutines(t, "after many sessions", running+5)
	stop()
	if err := <-ended; err != nil {
		t.Errorf("the server ended: %v", err)
	}
	httpServer.CloseIdleConnections()
	awaitGoroutines(t, "after the server has stopped", before)
}
