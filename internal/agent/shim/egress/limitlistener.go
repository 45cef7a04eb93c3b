package egress

import (
	"net"
	"sync"
)

// limitListener lets so many in at a time; the others wait in the kernel's queue.
type limitListener struct {
	net.Listener

	slots  chan struct{}
	done   <-chan struct{}
	onFull func() // is called when somebody has to wait
}

func newLimitListener(inner net.Listener, done <-chan struct{}, onFull func()) *limitListener {
	return &limitListener{Listener: inner, slots: make(chan struct{}, maxConns), done: done, onFull: onFull}
}

// Accept waits for a visitor, and for a seat.
func (l *limitListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	select {
	case l.slots <- struct{}{}:
	default:
		l.onFull()
		select {
		case l.slots <- struct{}{}:
		case <-l.done:
			_ = c.Close()
			return nil, net.ErrClosed
		}
	}
	return &limitConn{Conn: c, release: sync.OnceFunc(func() { <-l.slots })}, nil
}

// limitConn is a connection that has a seat until it is closed.
type limitConn struct {
	net.Conn

	release func()
}

// Close closes the connection.
func (c *limitConn) Close() error {
	defer c.release()
	return c.Conn.Close()
}

// CloseWrite ends what is said to the visitor.
func (c *limitConn) CloseWrite() error {
	if h, ok := c.Conn.(halfCloser); ok {
		return h.CloseWrite()
	}
	return nil
}
