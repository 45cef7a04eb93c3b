package link

import (
	"context"
	"net/http"
	"sync"

	"github.com/muster-dev/muster"
)

// Identify returns the worker that an HTTP request comes from, by its bearer token.
type Identify func(r *http.Request) (Peer, error)

// Accept runs one session, usually by calling Serve, and returns when it
// ends. It closes conn.
type Accept func(ctx context.Context, conn ServerConn, worker Peer)

// AcceptFrames is Accept for a connection of frames, opened by r.
type AcceptFrames func(ctx context.Context, r *http.Request, conn FrameConn, worker Peer)

// AcceptSessions accepts connections as sessions.
func AcceptSessions(accept Accept) AcceptFrames {
	return func(ctx context.Context, r *http.Request, conn FrameConn, worker Peer) {
		accept(ctx, NewServerConn(conn, RemoteIPOf(r)), worker)
	}
}

// SessionGroup owns the sessions of a transport's server side: it accepts them while Run runs, and Run
// returns only when the last one has ended. The zero value accepts none.
type SessionGroup struct {
	mu      sync.Mutex
	running context.Context //nolint:containedctx // of Run; nil while it does not run
	wg      sync.WaitGroup
}

// Run accepts sessions until ctx ends, then cancels them and waits for their end.
func (g *SessionGroup) Run(ctx context.Context) error {
	g.mu.Lock()
	g.running = ctx
	g.mu.Unlock()
	<-ctx.Done()
	g.mu.Lock()
	g.running = nil
	g.mu.Unlock()
	g.wg.Wait()
	return nil
}

// Do runs a session with the values of ctx; only Run cancels its context. The error is
// Unavailable if Run does not run.
func (g *SessionGroup) Do(ctx context.Context, session func(context.Context)) error {
	ctx, done, err := g.start(ctx)
	if err != nil {
		return err
	}
	defer done()
	session(ctx)
	return nil
}

// Go is Do in a new goroutine, which Run joins.
func (g *SessionGroup) Go(ctx context.Context, session func(context.Context)) error {
	ctx, done, err := g.start(ctx)
	if err != nil {
		return err
	}
	go func() {
		defer done()
		session(ctx)
	}()
	return nil
}

func (g *SessionGroup) start(ctx context.Context) (context.Context, func(), error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.running == nil {
		return nil, nil, muster.Errorf(muster.Unavailable, "the server is starting or shutting down: try again")
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(g.running, cancel)
	g.wg.Add(1)
	return ctx, func() {
		stop()
		cancel()
		g.wg.Done()
	}, nil
}
