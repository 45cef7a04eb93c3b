package link

import (
	"context"
	"net/http"
	"sync"

	"github.com/muster-dev/muster"
)

// Identify returns the worker that an HTTP request comes from, by its bearer token.
type Identify func(r *http.Request) (muster.WorkerID, error)

// Accept runs one session, usually by calling Serve, and returns when it
// ends. It closes conn.
type Accept func(ctx context.Context, conn ServerConn, worker muster.WorkerID)

// SessionGroup owns the sessions of a transport's server side: it accepts them while Run runs, and Run
// returns only when the last one has ended. The zero value accepts none.
type SessionGroup struct {
	mu      sync.Mutex
	running bool
	next    int
	cancels map[int]context.CancelFunc
	wg      sync.WaitGroup
}

// Run accepts sessions until ctx ends, then cancels them and waits for their end.
func (g *SessionGroup) Run(ctx context.Context) error {
	g.mu.Lock()
	g.running, g.cancels = true, map[int]context.CancelFunc{}
	g.mu.Unlock()
	<-ctx.Done()
	g.mu.Lock()
	g.running = false
	for _, cancel := range g.cancels {
		cancel()
	}
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
	if !g.running {
		return nil, nil, muster.Errorf(muster.Unavailable, "the server is starting or shutting down: try again")
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	id := g.next
	g.next++
	g.cancels[id] = cancel
	g.wg.Add(1)
	return ctx, func() {
		cancel()
		g.mu.Lock()
		delete(g.cancels, id)
		g.mu.Unlock()
		g.wg.Done()
	}, nil
}
