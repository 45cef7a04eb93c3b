package client

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/wire"
)

const (
	// maxEvent is the most bytes of one event of a stream.
	maxEvent = 16 << 20
	// silenceTimeout is how long a stream may say nothing, not even a comment, before the
	// connection counts as broken. The server speaks every 15 s.
	silenceTimeout = 45 * time.Second
)

// sseEvent is one server-sent event. One without data is a keep-alive of the server, also the first of a connection; its
// id, if there is one, counts as that of an event.
type sseEvent struct {
	id, name string
	data     []byte
}

// errStop ends a stream from within its handler.
var errStop = errors.New("stop")

// stream follows an event stream until handle returns an error, ctx ends, the
// server refuses, or it cannot be reached for longer than the stream's patience.
// After a broken connection it resumes after the last message with an id that handle took.
func (c *Client) stream(ctx context.Context, path string, query url.Values, last string, handle func(sseEvent) error) error {
	deadline := time.Now().Add(c.opts.RetryTimeout) // the first connection is an ordinary call
	for b := (backoff{}); ; {
		before := last
		received, err := c.connect(ctx, path, query, &last, handle)
		if received {
			deadline = time.Now().Add(c.opts.StreamRetryTimeout)
		}
		if last != before {
			b = backoff{}
		}
		switch {
		case errors.Is(err, errStop):
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case muster.CodeOf(err) != muster.Unavailable, !time.Now().Before(deadline):
			return err
		}
		if b.wait(ctx) != nil {
			return ctx.Err()
		}
	}
}

// connect follows one connection of a stream, and says whether the server spoke
// at all. Its error is Unavailable where it makes sense to connect again.
func (c *Client) connect(ctx context.Context, path string, query url.Values, last *string, handle func(sseEvent) error) (received bool, err error) {
	ctx, resetWatchdog, stop := withWatchdog(ctx, silenceTimeout)
	defer stop()
	header := http.Header{"Accept": {"text/event-stream"}}
	if *last != "" {
		header.Set(wire.HeaderLastEvent, *last)
	}
	resp, err := c.send(ctx, http.MethodGet, path, query, header, nil)
	if err != nil {
		return false, err
	}
	defer func() { _ = resp.Body.Close() }()
	events := newEventReader(resp.Body, func() { received = true; resetWatchdog() })
	for {
		ev, err := events.next()
		if err != nil {
			return received, muster.Errorf(muster.Unavailable, "the connection to %s broke: %w", c.base, err)
		}
		if err := handle(ev); err != nil {
			return received, err
		}
		if ev.id != "" {
			*last = ev.id
		}
	}
}

// withWatchdog returns a context that ends when alive was not called for d. stop
// releases it.
func withWatchdog(ctx context.Context, d time.Duration) (_ context.Context, resetWatchdog, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	watchdog := time.AfterFunc(d, func() { cancel(errors.New("the server said nothing for too long")) })
	return ctx, func() { watchdog.Reset(d) }, func() { watchdog.Stop(); cancel(nil) }
}

// eventReader reads server-sent events as the HTML standard defines them.
type eventReader struct {
	lines         *bufio.Scanner
	resetWatchdog func() // called for every line
}

func newEventReader(r io.Reader, resetWatchdog func()) *eventReader {
	s := bufio.NewScanner(r)
	s.Buffer(make([]byte, 0, 64<<10), maxEvent)
	return &eventReader{lines: s, resetWatchdog: resetWatchdog}
}

// next returns the next message; io.EOF means that the stream ended between two.
func (r *eventReader) next() (sseEvent, error) {
	var ev sseEvent
	started := false
	for r.lines.Scan() {
		r.resetWatchdog()
		line := r.lines.Text()
		if line == "" {
			if !started {
				continue
			}
			if ev.data == nil {
				return sseEvent{id: ev.id}, nil
			}
			ev.data = ev.data[:len(ev.data)-1] // the last line end
			return ev, nil
		}
		started = true
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "id":
			ev.id = value
		case "event":
			ev.name = value
		case "data":
			ev.data = append(append(ev.data, value...), '\n')
		}
	}
	if err := r.lines.Err(); err != nil {
		return sseEvent{}, err
	}
	if started {
		return sseEvent{}, io.ErrUnexpectedEOF
	}
	return sseEvent{}, io.EOF
}
