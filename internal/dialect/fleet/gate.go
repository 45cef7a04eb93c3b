package fleet

import (
	"context"
	"sync"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/link"
)

// gate lets a worker's sessions begin while the worker is there, and cuts them when it is not: without a goodbye, so that the server takes it
// for a worker whose connection broke.
type gate struct {
	inner link.Dialer

	mu     sync.Mutex
	opened chan struct{}   // closed while the gate is open
	conn   link.WorkerConn // of the session that goes on, nil for none
	isOpen bool
}

func newGate(inner link.Dialer, open bool) *gate {
	g := &gate{inner: inner, opened: make(chan struct{})}
	g.set(open)
	return g
}

// Dial implements link.Dialer: it waits until the gate is open.
func (g *gate) Dial(ctx context.Context) (link.WorkerConn, error) {
	for {
		g.mu.Lock()
		opened, open := g.opened, g.isOpen
		g.mu.Unlock()
		if open {
			break
		}
		select {
		case <-opened:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	conn, err := g.inner.Dial(ctx)
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.conn = conn
	if !g.isOpen {
		_ = conn.Close() // the session ends at its first word, and the next one waits
	}
	return &gatedConn{WorkerConn: conn, gate: g}, nil
}

// gatedConn says why it broke.
type gatedConn struct {
	link.WorkerConn

	gate *gate
}

// Recv implements link.WorkerConn.
func (c *gatedConn) Recv(ctx context.Context) (*link.ToWorker, error) {
	f, err := c.WorkerConn.Recv(ctx)
	if err != nil && c.gate.closed() {
		return nil, muster.Errorf(muster.Unavailable, "the foreign worker is silent")
	}
	return f, err
}

func (g *gate) closed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.isOpen
}

// set opens or closes the gate.
func (g *gate) set(open bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.isOpen == open {
		return
	}
	g.isOpen = open
	if open {
		close(g.opened)
		return
	}
	g.opened = make(chan struct{})
	if g.conn != nil {
		_ = g.conn.Close() // as if it broke
		g.conn = nil
	}
}
