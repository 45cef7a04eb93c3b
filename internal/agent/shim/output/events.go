package output

import (
	"bytes"
	"errors"
	"io"
	"os"

	"github.com/muster-dev/muster/internal/agent/run"
)

// Events reads $MUSTER_EVENTS.
type Events struct {
	path     string
	listener Listener
	file     *os.File // nil until it exists
	partial  []byte   // the start of a line
	disabled bool     // it is not a regular file: never read
}

// NewEvents returns the reader of the events file at path.
func NewEvents(path string, listener Listener) *Events {
	return &Events{path: path, listener: listener}
}

// maxPollSize bounds the bytes of one Poll, so that a task that writes without end does not block its supervisor.
const maxPollSize = 1 << 20

// Poll reads what was written since the last call, and reports whether there was something.
func (ev *Events) Poll() bool {
	if ev.disabled || ev.path == "" {
		return false
	}
	if ev.file == nil {
		f, err := run.OpenRegular(ev.path)
		if errors.Is(err, os.ErrNotExist) {
			return false
		}
		if err != nil {
			ev.disabled = true
			ev.listener.OnParseError("$MUSTER_EVENTS", err)
			return true
		}
		ev.file = f
	}
	buf := make([]byte, 4<<10)
	for read := 0; read < maxPollSize; {
		n, err := ev.file.Read(buf)
		read += n
		ev.partial = append(ev.partial, buf[:n]...)
		ev.parseLines()
		if n == 0 || err != nil && !errors.Is(err, io.EOF) {
			return read > 0
		}
	}
	return true
}

// parseLines parses the complete lines of partial.
func (ev *Events) parseLines() {
	for {
		line, rest, ok := bytes.Cut(ev.partial, []byte("\n"))
		if !ok {
			break
		}
		ev.partial = rest
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		p, err := run.ParseEvent(line)
		if err != nil {
			ev.listener.OnParseError("a line of $MUSTER_EVENTS", err)
			continue
		}
		ev.listener.OnProgress(p)
	}
	if len(ev.partial) == 0 {
		ev.partial = nil
	}
	if len(ev.partial) > run.MaxEventLine {
		ev.disabled, ev.partial = true, nil
		ev.listener.OnParseError("$MUSTER_EVENTS", errors.New("a line is too long; later lines are ignored"))
	}
}

// Close closes the file.
func (ev *Events) Close() {
	if ev.file != nil {
		_ = ev.file.Close()
	}
}
