package egress

import (
	"net"
	"sync"
)

// limitListener limits the number of connections; the others wait in the kernel's queue.
type limitListener struct {
	net.Listener

	slots  chan struct{}
	done   <-chan struct{}
	onFull func() // called when a connection has to wait
}

func newLimitListener(inner net.Listener, done <-chan struct{}, onFull func()) *limitListener {
	return &limitListener{Listener: inner, slots: make(chan struct{}, maxConns), done: done, onFull: onFull}
}

// Accept waits for a connection, and for a free slot.
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

// limitConn is a connection that has a slot until it is closed.
type limitConn struct {
	net.Conn

	release func()
}

// Close closes the connection.
func (c *limitConn) Close() error {
	defer c.release()
	return c.Conn.Close()
}

// CloseWrite closes the writing side.
func (c *limitConn) CloseWrite() error {
	if h, ok := c.Conn.(halfCloser); ok {
		return h.CloseWrite()
	}
	return nil
}
