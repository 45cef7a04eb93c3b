package top

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/client"
)

const (
	maxRingLines = 500
	maxRingBytes = 512 << 10
	maxLineBytes = 8 << 10
	initialTail  = 200 // lines of the first read
)

// logLine is one line of a task's output.
type logLine struct {
	text   string // without control characters
	stream string
	at     muster.Time
	seq    int64 // increases from line to line
}

// ring has the last lines of a task's output. run fills it; the other methods may be called concurrently.
type ring struct {
	stop context.CancelFunc

	mu        sync.Mutex
	lines     []logLine
	bytes     int
	next      int64 // number of the next line
	partial   map[string][]byte
	seq       int // increases with every change
	polledSeq int // seq at the last poll
	attempt   int
	ended     bool
	err       error
}

// followLog starts to follow a task's output.
func (m *model) followLog(id muster.TaskID) *ring {
	ctx, stop := context.WithCancel(m.ctx)
	r := &ring{stop: stop, partial: map[string][]byte{}}
	m.group.Go(func() error {
		r.run(ctx, m.retryingAPI, id)
		return nil
	})
	return r
}

// run reads output until the task or ctx ends.
func (r *ring) run(ctx context.Context, c *client.Client, id muster.TaskID) {
	var last error
	for l, err := range c.Logs(ctx, id, client.LogOptions{Tail: initialTail, Follow: true}) {
		if err != nil {
			last = err
			break
		}
		r.addOutput(&l)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for stream, rest := range r.partial {
		r.addLine(rest, stream, muster.NewTime(time.Now()))
	}
	r.ended, r.err = last == nil, last
	r.seq++
}

// addOutput adds output: lines, or parts of long ones.
func (r *ring) addOutput(l *client.LogLine) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l.Attempt != r.attempt {
		if r.attempt > 0 {
			r.addLine([]byte("— a new attempt —"), client.System, l.At)
		}
		r.attempt = l.Attempt
		clear(r.partial)
	}
	data := append(r.partial[l.Stream], l.Data...)
	for line, rest, ok := bytes.Cut(data, []byte("\n")); ok; line, rest, ok = bytes.Cut(data, []byte("\n")) {
		r.addLine(line, l.Stream, l.At)
		data = rest
	}
	if len(data) > maxLineBytes {
		r.addLine(data, l.Stream, l.At)
		data = nil
	}
	r.partial[l.Stream] = slices.Clone(data)
	r.seq++
}

// addLine appends a line and drops the oldest ones beyond the limits.
func (r *ring) addLine(data []byte, stream string, at muster.Time) {
	text := visibleText(data)
	r.lines = append(r.lines, logLine{text: text, stream: stream, at: at, seq: r.next})
	r.next++
	r.bytes += len(text)
	drop := 0
	for len(r.lines)-drop > maxRingLines || r.bytes > maxRingBytes {
		r.bytes -= len(r.lines[drop].text)
		drop++
	}
	if drop > 0 {
		r.lines = r.lines[drop:]
	}
}

// visibleText returns what a terminal shows of a line: the text after the last carriage return, without escape sequences.
func visibleText(data []byte) string {
	data = bytes.TrimRight(data, "\r")
	if i := bytes.LastIndexByte(data, '\r'); i >= 0 {
		data = data[i+1:]
	}
	if len(data) > maxLineBytes {
		data = data[:maxLineBytes]
	}
	text := ansi.Strip(strings.ToValidUTF8(string(data), "�"))
	return term.Sanitize(strings.ReplaceAll(text, "\t", "    "))
}

// poll reports whether the ring has changed since the last call.
func (r *ring) poll() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	changed := r.seq != r.polledSeq
	r.polledSeq = r.seq
	return changed
}

// snapshot returns the lines, and "end" or an error after the end of the log.
func (r *ring) snapshot() (lines []logLine, state string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.err != nil:
		state = r.err.Error()
	case r.ended:
		state = "end"
	}
	return r.lines, state
}
