package fleet

import (
	"context"
	"sync"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/link"
)

// switchDialer allows sessions of a worker while it is open. Closing it cuts the session without a goodbye, so that the server sees a broken
// connection.
type switchDialer struct {
	inner link.Dialer

	mu     sync.Mutex
	opened chan struct{}   // closed while isOpen
	conn   link.WorkerConn // of the current session, nil for none
	isOpen bool
}

// Dial implements link.Dialer. It waits until the dialer is open.
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
		_ = conn.Close() // the session fails, and the next Dial waits
	}
	return &switchConn{WorkerConn: conn, dialer: g}, nil
}

// switchConn explains errors of a connection that was cut.
type switchConn struct {
	link.WorkerConn

	dialer *switchDialer
}

func (c *switchConn) Recv(ctx context.Context) (*link.ToWorker, error) {
	f, err := c.WorkerConn.Recv(ctx)
	if err != nil && c.dialer.isClosed() {
		return nil, muster.Errorf(muster.Unavailable, "the foreign worker is unreachable")
	}
	return f, err
}

func (g *switchDialer) isClosed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.isOpen
}

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
		_ = g.conn.Close()
		g.conn = nil
	}
}
