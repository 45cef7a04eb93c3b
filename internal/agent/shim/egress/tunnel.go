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

// connect joins a task's connection with one to the host that it named.
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
		respond(w, http.StatusInternalServerError, "the connection cannot be taken over: "+err.Error())
		return
	}
	defer func() { _ = client.Close() }()
	_ = client.SetDeadline(time.Time{}) // that of the header
	initial := make([]byte, buffered.Reader.Buffered())
	_, _ = io.ReadFull(buffered, initial) // it is there already
	if _, err := io.WriteString(client, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return
	}
	tunnel(ctx, client, upstream, initial, p.idleTimeout)
}

// halfCloser is a connection of which one direction can be ended.
type halfCloser interface {
	net.Conn
	CloseWrite() error
}

// tunnel carries bytes both ways until both sides have said all, one of them fails, none of
// them says anything for the time of quiet, or ctx ends. early are bytes that near said already.
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

// copyUntilEOF copies what comes until its end, which is no error. It takes no more than the other
// side has taken.
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
