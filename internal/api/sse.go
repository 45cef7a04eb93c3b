package api

import (
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
	w  io.Writer
	rc *http.ResponseController
}

// openEvents begins the answer.
func openEvents(w http.ResponseWriter) (*eventStream, error) {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // for reverse proxies
	es := &eventStream{w: w, rc: http.NewResponseController(w)}
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
	if err := es.rc.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return fmt.Errorf("set deadline: %w", err)
	}
	if _, err := io.WriteString(es.w, text); err != nil {
		return err
	}
	if flush {
		return es.rc.Flush()
	}
	return nil
}

// patientWriter gives each write of a long answer its own deadline.
type patientWriter struct {
	http.ResponseWriter
	rc *http.ResponseController
}

func patient(w http.ResponseWriter) *patientWriter {
	return &patientWriter{ResponseWriter: w, rc: http.NewResponseController(w)}
}

func (p *patientWriter) Write(b []byte) (int, error) {
	if err := p.rc.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return 0, fmt.Errorf("set deadline: %w", err)
	}
	return p.ResponseWriter.Write(b)
}

// patientReader gives each read of a long request its own deadline.
type patientReader struct {
	io.Reader
	rc *http.ResponseController
}

func (p *patientReader) Read(b []byte) (int, error) {
	if err := p.rc.SetReadDeadline(time.Now().Add(readTimeout)); err != nil {
		return 0, fmt.Errorf("set deadline: %w", err)
	}
	return p.Reader.Read(b)
}
