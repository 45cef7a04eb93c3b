package api

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"
)

const (
	// keepAlive is how often a stream says something.
	keepAlive = 15 * time.Second
	// writeTimeout is how long one write to a client may take, and readTimeout how
	// long a client may send nothing of its upload.
	writeTimeout = 30 * time.Second
	readTimeout  = time.Minute
)

// eventStream writes server-sent events.
type eventStream struct {
	w  *patientWriter
	rc *http.ResponseController
}

// openEvents begins the answer.
func openEvents(w http.ResponseWriter, r *http.Request) (*eventStream, error) {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // for reverse proxies
	es := &eventStream{w: patient(w, r), rc: http.NewResponseController(w)}
	return es, es.beat()
}

// beat shows the client that the server is there.
func (es *eventStream) beat() error {
	return es.send(": muster\n\n", true)
}

// event writes one event; id may be "". It may stay in a buffer until flush.
func (es *eventStream) event(name, id string, data any) error {
	text, err := json.Marshal(data) // has no line ends
	if err != nil {
		return fmt.Errorf("event %s: %w", name, err)
	}
	head := "event: " + name + "\n"
	if id != "" {
		head += "id: " + id + "\n"
	}
	return es.send(head+"data: "+string(text)+"\n\n", false)
}

func (es *eventStream) flush() error { return es.send("", true) }

func (es *eventStream) send(text string, flush bool) error {
	if _, err := io.WriteString(es.w, text); err != nil {
		return err
	}
	if flush {
		return es.rc.Flush()
	}
	return nil
}

// patientWriter gives each write of a long answer its own deadline, until its request ends.
type patientWriter struct {
	http.ResponseWriter
	ctx context.Context //nolint:containedctx // of the request that it answers
	rc  *http.ResponseController
}

func patient(w http.ResponseWriter, r *http.Request) *patientWriter {
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

// patientReader gives each read of a long request its own deadline, until the request ends.
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
