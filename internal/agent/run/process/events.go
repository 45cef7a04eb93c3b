package process

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/muster-dev/muster/internal/agent/run"
)

// eventsFile is how far $MUSTER_EVENTS was read.
type eventsFile struct {
	file  *os.File // nil until the task wrote it
	rest  []byte   // the beginning of a line
	wrong bool     // it is no plain file: never read
}

// eventsAtOnce bounds what one look reads, so that a task that writes without end
// does not keep its supervisor.
const eventsAtOnce = 1 << 20

func (a *Attempt) eventsPath() string { return filepath.Join(a.base, "events") }

// readEvents passes on what was written to $MUSTER_EVENTS since the last look.
func (a *Attempt) readEvents() {
	ev := &a.events
	if ev.wrong {
		return
	}
	if ev.file == nil {
		f, err := openPlain(a.eventsPath())
		if errors.Is(err, os.ErrNotExist) {
			return
		}
		if err != nil {
			ev.wrong = true
			a.refuseEvent("$MUSTER_EVENTS", err)
			return
		}
		ev.file = f
	}
	for read := 0; read < eventsAtOnce; {
		buf := make([]byte, 8<<10)
		n, err := ev.file.Read(buf)
		read += n
		ev.rest = append(ev.rest, buf[:n]...)
		a.eventLines()
		if n == 0 || err != nil && !errors.Is(err, io.EOF) {
			return
		}
	}
}

// eventLines takes the whole lines out of rest.
func (a *Attempt) eventLines() {
	ev := &a.events
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
			a.refuseEvent("a line of $MUSTER_EVENTS", err)
			continue
		}
		p.Attempt = a.Task.Attempt
		a.sink.Progress(p)
	}
	if len(ev.rest) > run.MaxEventLine {
		ev.wrong = true
		a.refuseEvent("$MUSTER_EVENTS", errors.New("a line is too long; nothing more is read"))
	}
}

// openPlain opens a file that a task made, if it is a plain one: a link may lead
// anywhere, and a pipe would block.
func openPlain(path string) (*os.File, error) {
	before, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !before.Mode().IsRegular() {
		return nil, errors.New("it is not a plain file")
	}
	f, err := os.OpenFile(path, os.O_RDONLY|openFlags, 0)
	if err != nil {
		return nil, err
	}
	if after, err := f.Stat(); err != nil || !os.SameFile(before, after) {
		_ = f.Close()
		return nil, errors.New("it was replaced while it was opened")
	}
	return f, nil
}
