package bridge

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/client"
)

const (
	logEvery   = time.Second      // lines are gathered for so long
	logMost    = 500              // lines at once
	logLine    = 16 << 10         // bytes of one line; a longer one is cut
	logDrain   = 30 * time.Second // how long the end of a log may take after its task's
	logBetween = time.Second      // before a broken log is read again
)

// logs brings the log of a job's first task to the Port.
type logs struct {
	bridge *Bridge
	at     *job
	cancel context.CancelFunc
	done   chan struct{} // closed when the whole log was brought, or reading was stopped
	port   sync.Mutex    // Progress and Log of a job do not overlap
}

func (b *Bridge) startLogs(ctx context.Context, at *job) *logs {
	ctx, cancel := context.WithCancel(ctx)
	l := &logs{bridge: b, at: at, cancel: cancel, done: make(chan struct{})}
	go l.run(ctx) // joined by stop
	return l
}

// turn calls f while no lines are brought.
func (l *logs) turn(f func()) {
	l.port.Lock()
	defer l.port.Unlock()
	f()
}

// drain waits for the end of the log, within bounds.
func (l *logs) drain(ctx context.Context) {
	t := time.NewTimer(logDrain)
	defer t.Stop()
	select {
	case <-l.done:
	case <-t.C:
	case <-ctx.Done():
	}
}

// stop ends reading.
func (l *logs) stop() {
	l.cancel()
	<-l.done
}

func (l *logs) run(ctx context.Context) {
	defer close(l.done)
	for ctx.Err() == nil {
		if l.read(ctx) {
			return
		}
		if !sleep(ctx, logBetween) {
			return
		}
	}
}

// read follows the log from after the last line that was acknowledged, and reports whether it was brought to its end.
func (l *logs) read(ctx context.Context) (whole bool) {
	r := l.bridge.read(l.at)
	lines := make(chan client.LogLine)
	ctx, cancel := context.WithCancel(ctx)
	failed := make(chan error, 1)
	go func() { // ends with ctx, which ends with this function; joined by failed
		defer close(lines)
		task := muster.TaskID{Job: r.Job}
		for line, err := range l.bridge.cfg.Client.Logs(ctx, task, client.LogOptions{Attempt: r.Attempt, Follow: true}) {
			if err != nil {
				failed <- err
				return
			}
			select {
			case lines <- line:
			case <-ctx.Done():
				failed <- ctx.Err()
				return
			}
		}
		failed <- nil
	}()
	defer func() {
		cancel()
		for range lines { // until the reader has ended
		}
	}()
	b := &batch{logs: l, attempt: r.Attempt, skip: r.Lines}
	tick := time.NewTicker(logEvery)
	defer tick.Stop()
	for {
		select {
		case line, ok := <-lines:
			if !ok {
				b.endLine()
				return b.bring(ctx) && <-failed == nil
			}
			b.add(line)
			if len(b.lines) >= logMost && !b.bring(ctx) {
				return false
			}
		case <-tick.C:
			if !b.bring(ctx) {
				return false
			}
		}
	}
}

// batch is what was read and not acknowledged.
type batch struct {
	logs    *logs
	attempt int
	skip    int // lines of attempt that were acknowledged before
	count   int // whole lines of attempt that were read
	part    bytes.Buffer
	lines   []string
}

func (b *batch) add(line client.LogLine) {
	if line.Attempt != b.attempt {
		b.endLine()
		b.attempt, b.skip, b.count = line.Attempt, 0, 0
	}
	if room := logLine - b.part.Len(); room > 0 {
		b.part.Write(line.Data[:min(len(line.Data), room)])
	}
	if bytes.HasSuffix(line.Data, []byte("\n")) {
		b.endLine()
	}
}

// endLine takes what there is for a line.
func (b *batch) endLine() {
	if b.part.Len() == 0 {
		return
	}
	text := strings.ToValidUTF8(strings.TrimRight(b.part.String(), "\r\n"), "\uFFFD")
	b.part.Reset()
	if b.count++; b.count > b.skip {
		b.lines = append(b.lines, text)
	}
}

// bring hands the lines to the Port and notes that it took them.
func (b *batch) bring(ctx context.Context) bool {
	if len(b.lines) == 0 {
		return true
	}
	br, at := b.logs.bridge, b.logs.at
	r := br.read(at)
	var err error
	b.logs.turn(func() { err = br.port.Log(ctx, r.job(), b.lines) })
	if err != nil {
		return false
	}
	b.lines = b.lines[:0]
	return br.noteLines(at, b.attempt, b.count) == nil
}

// noteLines notes which lines were acknowledged.
func (b *Bridge) noteLines(at *job, attempt, count int) error {
	return b.change(at, func(r *record) { r.Attempt, r.Lines = attempt, count })
}
