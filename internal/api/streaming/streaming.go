// Package streaming writes and reads what takes long over HTTP: server-sent events, and bodies whose every read and write has a deadline of its own.
package streaming

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

const (
	// KeepAlive is how long a stream sends nothing before it sends a comment.
	KeepAlive = 15 * time.Second
	// writeTimeout is how long one write to a client may take, and readTimeout how
	// long a client may send nothing of its upload.
	writeTimeout = 30 * time.Second
	readTimeout  = time.Minute
)

// Events writes server-sent events. It is for one goroutine.
type Events struct {
	w      io.Writer
	rc     *http.ResponseController
	unsent bool      // something was written after the last flush
	sent   time.Time // when something was last flushed
}

// OpenEvents begins the answer.
func OpenEvents(w http.ResponseWriter, r *http.Request) (*Events, error) {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // for reverse proxies
	es := &Events{w: Writer(w, r), rc: http.NewResponseController(w)}
	return es, es.beat("")
}

// beat shows the client that the server is there. A client that connects again resumes after id, unless it is "".
func (es *Events) beat(id string) error {
	text := ": muster\n\n"
	if id != "" {
		text = ": muster\nid: " + id + "\n\n"
	}
	return errors.Join(es.write(text), es.Flush())
}

// BeatBy is when the next keep-alive is due.
func (es *Events) BeatBy() time.Time { return es.sent.Add(KeepAlive) }

// Keep sends a keep-alive with an id if nothing was sent for as long as KeepAlive. It is called
// for everything that is read for the client and not sent to it.
func (es *Events) Keep(id string) error {
	if time.Now().Before(es.BeatBy()) {
		return nil
	}
	return es.beat(id)
}

// Event writes one event; id may be "". It may stay in a buffer until Flush.
func (es *Events) Event(name, id string, data any) error {
	text, err := json.Marshal(data) // has no line ends
	if err != nil {
		return fmt.Errorf("event %s: %w", name, err)
	}
	head := "event: " + name + "\n"
	if id != "" {
		head += "id: " + id + "\n"
	}
	return es.write(head + "data: " + string(text) + "\n\n")
}

func (es *Events) write(text string) error {
	es.unsent = true
	_, err := io.WriteString(es.w, text)
	return err
}

// Flush sends what is in the buffer.
func (es *Events) Flush() error {
	if !es.unsent {
		return nil
	}
	es.unsent, es.sent = false, time.Now()
	return es.rc.Flush()
}

type patientWriter struct {
	http.ResponseWriter
	ctx context.Context //nolint:containedctx // of the request that it answers
	rc  *http.ResponseController
}

// Writer returns a writer of a long answer that gives each write its own deadline, until its request ends.
func Writer(w http.ResponseWriter, r *http.Request) http.ResponseWriter {
	return &patientWriter{ResponseWriter: w, ctx: r.Context(), rc: http.NewResponseController(w)}
}

// Write looks at the context after it has set the deadline: one that ended before has set a
// deadline that this one replaced (see grant.interrupt).
func (p *patientWriter) Write(b []byte) (int, error) {
	if err := p.rc.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return 0, fmt.Errorf("set deadline: %w", err)
	}
	if p.ctx.Err() != nil {
		return 0, context.Cause(p.ctx)
	}
	return p.ResponseWriter.Write(b)
}

// Reader returns a reader of the body of a long request that gives each read its own deadline, until the request ends.
func Reader(body io.Reader, w http.ResponseWriter, r *http.Request) io.Reader {
	return &patientReader{Reader: body, ctx: r.Context(), rc: http.NewResponseController(w)}
}

type patientReader struct {
	io.Reader
	ctx context.Context //nolint:containedctx // of the request that it reads
	rc  *http.ResponseController
}

// Read looks at the context after it has set the deadline, as patientWriter.Write does.
func (p *patientReader) Read(b []byte) (int, error) {
	if err := p.rc.SetReadDeadline(time.Now().Add(readTimeout)); err != nil {
		return 0, fmt.Errorf("set deadline: %w", err)
	}
	if p.ctx.Err() != nil {
		return 0, context.Cause(p.ctx)
	}
	n, err := p.Reader.Read(b)
	if err != nil && p.ctx.Err() != nil {
		err = context.Cause(p.ctx)
	}
	return n, err
}
