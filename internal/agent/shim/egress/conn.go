package egress

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// connect tunnels a connection of the task to its target.
func (p *Proxy) connect(w http.ResponseWriter, r *http.Request, t target) {
	ctx := context.WithValue(r.Context(), targetKey{}, t)
	upstream, err := p.dialer.DialContext(ctx, "tcp", t.String())
	if err != nil {
		p.handleError(w, r, err)
		return
	}
	defer func() { _ = upstream.Close() }()
	client, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		respond(w, http.StatusInternalServerError, "cannot hijack the connection: "+err.Error())
		return
	}
	defer func() { _ = client.Close() }()
	_ = client.SetDeadline(time.Time{}) // of the request's header
	initial := make([]byte, buffered.Reader.Buffered())
	_, _ = io.ReadFull(buffered, initial) // buffered already
	if _, err := io.WriteString(client, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return
	}
	tunnel(ctx, client, upstream, initial, p.idleTimeout)
}

// halfCloser is a connection whose writing side can be closed.
type halfCloser interface {
	net.Conn
	CloseWrite() error
}

// tunnel copies bytes both ways until both sides have ended, one of them fails, neither has sent a byte for idleTimeout, or ctx ends. initial are
// bytes that client has sent already.
func tunnel(ctx context.Context, client, upstream net.Conn, initial []byte, idleTimeout time.Duration) {
	closeBoth := func() { _, _ = client.Close(), upstream.Close() }
	defer context.AfterFunc(ctx, closeBoth)()
	idleTimer := time.AfterFunc(idleTimeout, closeBoth)
	defer idleTimer.Stop()
	copyHalf := func(to, from net.Conn, prefix []byte) {
		err := copyUntilEOF(to, from, prefix, func() { idleTimer.Reset(idleTimeout) })
		if h, ok := to.(halfCloser); ok && err == nil {
			err = h.CloseWrite()
		}
		if err != nil {
			closeBoth()
		}
	}
	var wg sync.WaitGroup
	wg.Go(func() { copyHalf(client, upstream, nil) })
	copyHalf(upstream, client, initial)
	wg.Wait()
}

// copyUntilEOF copies until the end of from, which is not an error. It does not read ahead of the writes.
func copyUntilEOF(to io.Writer, from io.Reader, initial []byte, onActivity func()) error {
	if len(initial) > 0 {
		if _, err := to.Write(initial); err != nil {
			return err
		}
	}
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			onActivity()
			if _, err := to.Write(buf[:n]); err != nil {
				return err
			}
			onActivity()
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

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
