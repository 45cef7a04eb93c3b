package output

import (
	"bytes"
	"errors"
	"io"
	"os"

	"github.com/muster-dev/muster/internal/agent/run"
)

// Events is $MUSTER_EVENTS, and how far it was read.
type Events struct {
	path  string
	hears Listener
	file  *os.File // nil until the task wrote it
	rest  []byte   // the beginning of a line
	wrong bool     // it is no plain file: never read
}

// NewEvents returns the reader of a file that a task may write.
func NewEvents(path string, hears Listener) *Events { return &Events{path: path, hears: hears} }

// eventsAtOnce bounds what one look reads, so that a task that writes without end
// does not keep those that stand by it.
const eventsAtOnce = 1 << 20

// Look passes on what was written since the last look, and reports whether there was something.
func (ev *Events) Look() bool {
	if ev.wrong || ev.path == "" {
		return false
	}
	if ev.file == nil {
		f, err := run.OpenPlain(ev.path)
		if errors.Is(err, os.ErrNotExist) {
			return false
		}
		if err != nil {
			ev.wrong = true
			ev.hears.Misunderstood("$MUSTER_EVENTS", err)
			return true
		}
		ev.file = f
	}
	buf := make([]byte, 4<<10)
	for read := 0; read < eventsAtOnce; {
		n, err := ev.file.Read(buf)
		read += n
		ev.rest = append(ev.rest, buf[:n]...)
		ev.lines()
		if n == 0 || err != nil && !errors.Is(err, io.EOF) {
			return read > 0
		}
	}
	return true
}

// lines takes the whole lines out of rest.
func (ev *Events) lines() {
	for {
		line, rest, ok := bytes.Cut(ev.rest, []byte("\n"))
		if !ok {
			break
		}
		ev.rest = rest
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		p, err := run.ParseEvent(line)
		if err != nil {
			ev.hears.Misunderstood("a line of $MUSTER_EVENTS", err)
			continue
		}
		ev.hears.Said(p)
	}
	if len(ev.rest) == 0 {
		ev.rest = nil
	}
	if len(ev.rest) > run.MaxEventLine {
		ev.wrong, ev.rest = true, nil
		ev.hears.Misunderstood("$MUSTER_EVENTS", errors.New("a line is too long; nothing more is read"))
	}
}

// Close ends the reading.
func (ev *Events) Close() {
	if ev.file != nil {
		_ = ev.file.Close()
	}
}
