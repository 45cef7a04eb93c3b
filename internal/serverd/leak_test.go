package serverd_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

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
	workers := make([]leakWorker, 20)
	for i := range workers {
		dir, name := t.TempDir(), fmt.Sprintf("box-%d", i)
		id, err := agent.Join(t.Context(), httpServer, at, "join-token-0123456789", agent.Registration{Name: name}, dir, log)
		if err != nil {
			t.Fatal(err)
		}
		credentials := agent.NewCredentials(id, at, httpServer, dir, log)
		workers[i] = leakWorker{&link.Hello{Version: link.Version, Worker: id.Worker, Name: name, Offer: muster.Offer{Kinds: []string{muster.KindNoop}, Resources: muster.Resources{CPUs: 1, Slots: 1}}}, []link.Dialer{
			&wslink.Dialer{Server: s.URL(), Credentials: credentials, HTTP: httpServer},
			&polllink.Dialer{Server: s.URL(), Credentials: credentials, HTTP: httpServer},
		}}
	}
	cycle := func(rounds int) {
		group, ctx := errgroup.WithContext(t.Context())
		for _, w := range workers { // at once: the server waits for each session that is taken over whether it is alive
			group.Go(func() error { return w.reconnect(ctx, rounds) })
		}
		if err := group.Wait(); err != nil {
			t.Fatal(err)
		}
		httpServer.CloseIdleConnections()
	}
	cycle(1)
	awaitGoroutines(t, "after the first sessions", before+30)
	running := runtime.NumGoroutine()
	cycle(4)
	awaitGoroutines(t, "after many sessions", running+5)
	stop()
	if err := <-ended; err != nil {
		t.Errorf("the server ended: %v", err)
	}
	httpServer.CloseIdleConnections()
	awaitGoroutines(t, "after the server has stopped", before)
}

type leakWorker struct {
	hello   *link.Hello
	dialers []link.Dialer
}

// reconnect opens sessions that take over from another one.
func (w leakWorker) reconnect(ctx context.Context, rounds int) error {
	for round := range rounds {
		first, err := w.connect(ctx, round)
		if err != nil {
			return fmt.Errorf("%s, round %d: %w", w.hello.Name, round, err)
		}
		second, err := w.connect(ctx, round/2)
		if err != nil {
			return fmt.Errorf("%s, take-over of round %d: %w", w.hello.Name, round, err)
		}
		if round%3 == 0 {
			if err := second.Send(ctx, &link.ToServer{Goodbye: &link.Goodbye{}}); err != nil {
				return err
			}
		}
		for _, c := range []link.WorkerConn{first, second} {
			_ = c.Close() // the server may have been faster
		}
	}
	return nil
}

func (w leakWorker) connect(ctx context.Context, round int) (link.WorkerConn, error) {
	conn, err := w.dialers[round%2].Dial(ctx)
	if err != nil {
		return nil, err
	}
	if err := conn.Send(ctx, &link.ToServer{Hello: w.hello}); err != nil {
		return nil, err
	}
	if f, err := conn.Recv(ctx); err != nil || f.Welcome == nil {
		return nil, fmt.Errorf("no welcome: %+v, %w", f, err)
	}
	return conn, nil
}
