package fleet

import (
	"context"
	"sync"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/link"
)

// switchDialer lets a worker's sessions begin while the worker is there, and cuts them when it is not: without a goodbye, so that the server takes it
// for a worker whose connection broke.
type switchDialer struct {
	inner link.Dialer

	mu     sync.Mutex
	opened chan struct{}   // closed while the gate is open
	conn   link.WorkerConn // of the session that goes on, nil for none
	isOpen bool
}

func newSwitchDialer(inner link.Dialer, open bool) *switchDialer {
	g := &switchDialer{inner: inner, opened: make(chan struct{})}
	g.setOpen(open)
	return g
}

// Dial implements link.Dialer: it waits until the gate is open.
func (g *switchDialer) Dial(ctx context.Context) (link.WorkerConn, error) {
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
	return &switchConn{WorkerConn: conn, dialer: g}, nil
}

// switchConn says why it broke.
type switchConn struct {
	link.WorkerConn

	dialer *switchDialer
}

// Recv implements link.WorkerConn.
func (c *switchConn) Recv(ctx context.Context) (*link.ToWorker, error) {
	f, err := c.WorkerConn.Recv(ctx)
	if err != nil && c.dialer.isClosed() {
		return nil, muster.Errorf(muster.Unavailable, "the foreign worker is silent")
	}
	return f, err
}

func (g *switchDialer) isClosed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.isOpen
}

// setOpen opens or closes the gate.
func (g *switchDialer) setOpen(open bool) {
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
