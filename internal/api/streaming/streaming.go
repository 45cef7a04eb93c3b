// Package streaming writes server-sent events, and reads and writes long bodies with a deadline for each read and write.
package streaming

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/muster-dev/muster"
)

const (
	// KeepAlive is the time without data after which a stream sends a comment.
	KeepAlive = 15 * time.Second
	// writeTimeout is the deadline of one write, readTimeout that of one read of an upload.
	writeTimeout = 30 * time.Second
	readTimeout  = time.Minute
	// minUploadRate is how many bytes a second an upload brings on average, after readTimeout: one that trickles would hold its
	// connection and its lock forever.
	minUploadRate = 1 << 10
)

// EventWriter writes server-sent events. One goroutine uses it.
type EventWriter struct {
	w         io.Writer
	rc        *http.ResponseController
	dirty     bool      // written since the last flush
	lastFlush time.Time // time of the last flush
}

// NewEventWriter starts an event stream as the answer to r.
func NewEventWriter(w http.ResponseWriter, r *http.Request) (*EventWriter, error) {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // for reverse proxies
	es := &EventWriter{w: NewWriter(w, r), rc: http.NewResponseController(w)}
	return es, es.keepAlive("")
}

// keepAlive sends a comment. A client that reconnects resumes after id, unless it is "".
func (es *EventWriter) keepAlive(id string) error {
	text := ": muster\n\n"
	if id != "" {
		text = ": muster\nid: " + id + "\n\n"
	}
	return errors.Join(es.write(text), es.Flush())
}

// KeepAliveDue returns when the next keep-alive is due.
func (es *EventWriter) KeepAliveDue() time.Time { return es.lastFlush.Add(KeepAlive) }

// SendKeepAlive sends a keep-alive with an id if one is due. Call it for everything that is read for the
// client and not sent to it.
func (es *EventWriter) SendKeepAlive(id string) error {
	if time.Now().Before(es.KeepAliveDue()) {
		return nil
	}
	return es.keepAlive(id)
}

// Send writes one event; id may be "". The event may be buffered until Flush.
func (es *EventWriter) Send(name, id string, data any) error {
	text, err := json.Marshal(data) // without line ends
	if err != nil {
		return fmt.Errorf("event %s: %w", name, err)
	}
	head := "event: " + name + "\n"
	if id != "" {
		head += "id: " + id + "\n"
	}
	return es.write(head + "data: " + string(text) + "\n\n")
}

func (es *EventWriter) write(text string) error {
	es.dirty = true
	_, err := io.WriteString(es.w, text)
	return err
}

// Flush sends buffered events.
func (es *EventWriter) Flush() error {
	if !es.dirty {
		return nil
	}
	es.dirty, es.lastFlush = false, time.Now()
	return es.rc.Flush()
}

type deadlineWriter struct {
	http.ResponseWriter
	ctx context.Context //nolint:containedctx // of the request that it answers
	rc  *http.ResponseController
}

// NewWriter returns a writer that sets a deadline for each write, until the request ends.
func NewWriter(w http.ResponseWriter, r *http.Request) http.ResponseWriter {
	return &deadlineWriter{ResponseWriter: w, ctx: r.Context(), rc: http.NewResponseController(w)}
}

// Write checks the context after it has set the deadline: a key that ended before has set a
// deadline that this one replaced (see keyring.ActiveKey.Interrupt).
func (w *deadlineWriter) Write(b []byte) (int, error) {
	if err := w.rc.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return 0, fmt.Errorf("set deadline: %w", err)
	}
	if w.ctx.Err() != nil {
		return 0, context.Cause(w.ctx)
	}
	return w.ResponseWriter.Write(b)
}

// NewReader returns a reader of a request's body that sets a deadline for each read, until the request ends. It fails for a body
// that arrives at less than 1 KiB a second on average, after a minute.
func NewReader(body io.Reader, w http.ResponseWriter, r *http.Request) io.Reader {
	return &deadlineReader{Reader: body, ctx: r.Context(), rc: http.NewResponseController(w), began: time.Now()}
}

type deadlineReader struct {
	io.Reader
	ctx      context.Context //nolint:containedctx // of the request that it reads
	rc       *http.ResponseController
	began    time.Time
	received int64
}

// Read checks the context after it has set the deadline, as deadlineWriter.Write does.
func (r *deadlineReader) Read(b []byte) (int, error) {
	if err := r.rc.SetReadDeadline(time.Now().Add(readTimeout)); err != nil {
		return 0, fmt.Errorf("set deadline: %w", err)
	}
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	n, err := r.Reader.Read(b)
	r.received += int64(n)
	if took := time.Since(r.began); err == nil && took > readTimeout && float64(r.received) < minUploadRate*took.Seconds() {
		err = fmt.Errorf("it brought %s in %s, less than %s a second", muster.Size(r.received), took.Round(time.Second), muster.Size(minUploadRate))
	}
	if err != nil && r.ctx.Err() != nil {
		err = context.Cause(r.ctx)
	}
	return n, err
}
