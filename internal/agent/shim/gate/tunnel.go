package gate

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
func (g *Gate) connect(w http.ResponseWriter, r *http.Request, t target) {
	ctx := context.WithValue(r.Context(), asked{}, t)
	far, err := g.from.DialContext(ctx, "tcp", t.String())
	if err != nil {
		g.failed(w, r, err)
		return
	}
	defer func() { _ = far.Close() }()
	near, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		answer(w, http.StatusInternalServerError, "the connection cannot be taken over: "+err.Error())
		return
	}
	defer func() { _ = near.Close() }()
	_ = near.SetDeadline(time.Time{}) // that of the header
	early := make([]byte, buffered.Reader.Buffered())
	_, _ = io.ReadFull(buffered, early) // it is there already
	if _, err := io.WriteString(near, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return
	}
	tunnel(ctx, near, far, early, g.quiet)
}

// half is a connection of which one direction can be ended.
type half interface {
	net.Conn
	CloseWrite() error
}

// tunnel carries bytes both ways until both sides have said all, one of them fails, none of
// them says anything for the time of quiet, or ctx ends. early are bytes that near said already.
func tunnel(ctx context.Context, near, far net.Conn, early []byte, quiet time.Duration) {
	end := func() { _, _ = near.Close(), far.Close() }
	defer context.AfterFunc(ctx, end)()
	silence := time.AfterFunc(quiet, end)
	defer silence.Stop()
	carry := func(to, from net.Conn, first []byte) {
		err := flow(to, from, first, func() { silence.Reset(quiet) })
		if h, ok := to.(half); ok && err == nil {
			err = h.CloseWrite()
		}
		if err != nil {
			end()
		}
	}
	var back sync.WaitGroup
	back.Go(func() { carry(near, far, nil) })
	carry(far, near, early)
	back.Wait()
}

// flow copies what comes until its end, which is no error. It takes no more than the other
// side has taken.
func flow(to io.Writer, from io.Reader, first []byte, alive func()) error {
	if len(first) > 0 {
		if _, err := to.Write(first); err != nil {
			return err
		}
	}
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			alive()
			if _, err := to.Write(buf[:n]); err != nil {
				return err
			}
			alive()
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
