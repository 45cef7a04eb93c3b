package bridge

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/client"
)

const (
	logEvery = time.Second // lines are gathered for so long
	logMost  = 500         // lines at once
	logLine  = 16 << 10    // bytes of one line; a longer one is cut
	logTries = 8           // for lines that a foreign server answers with an error
)

// Streams bounds how many logs are read at the same time, because a server bounds the streams of an API key.
type Streams struct{ running, ended chan struct{} }

// NewStreams allows 40 logs of running jobs, and ten more of jobs that have ended.
func NewStreams() *Streams {
	return &Streams{running: make(chan struct{}, 40), ended: make(chan struct{}, 10)}
}

// logs brings the log of a job's first task to the Port, if that is a Logger. Its methods but turn are for one goroutine.
type logs struct {
	bridge *Bridge
	at     *job
	to     Logger             // nil if nothing is to be done
	cancel context.CancelFunc // nil until start
	ending chan struct{}      // closed when the job has ended
	active chan struct{}      // holds one token if lines came
	held   atomic.Bool        // it waits for the foreign server, or for its turn
	done   chan struct{}      // closed when the whole log was brought, or reading was stopped
	port   sync.Mutex         // Progress and Log of a job do not overlap
}

func (b *Bridge) newLogs(at *job) *logs {
	l := &logs{bridge: b, at: at, ending: make(chan struct{}), active: make(chan struct{}, 1), done: make(chan struct{})}
	l.to, _ = b.port.(Logger)
	return l
}

// start begins to read, unless that was done.
func (l *logs) start(ctx context.Context) {
	if l.to == nil || l.cancel != nil {
		return
	}
	ctx, l.cancel = context.WithCancel(ctx)
	go l.run(ctx) // joined by stop
}

// turn calls f while no lines are brought.
func (l *logs) turn(f func()) {
	l.port.Lock()
	defer l.port.Unlock()
	f()
}

// drain waits for the end of the log of a job that has ended, for as long as lines come or the foreign server does not take them.
func (l *logs) drain(ctx context.Context) {
	if l.cancel == nil {
		return
	}
	close(l.ending)
	t := time.NewTimer(l.bridge.cfg.Drain)
	defer t.Stop()
	for {
		select {
		case <-l.done:
			return
		case <-l.active:
			t.Reset(l.bridge.cfg.Drain)
		case <-t.C:
			if !l.held.Load() {
				return
			}
			t.Reset(l.bridge.cfg.Drain)
		case <-ctx.Done():
			return
		}
	}
}

// stop ends reading.
func (l *logs) stop() {
	if l.cancel != nil {
		l.cancel()
		<-l.done
	}
}

func (l *logs) run(ctx context.Context) {
	defer close(l.done)
	leave := l.enter(ctx)
	if leave == nil {
		return
	}
	defer leave()
	for n := 0; !l.read(ctx); n++ {
		if !l.bridge.backOff(ctx, n) {
			return
		}
	}
}

// enter waits until the log may be read, and returns what ends that; nil if ctx ended before.
func (l *logs) enter(ctx context.Context) (leave func()) {
	s, ending := l.bridge.cfg.Streams, l.ending
	var ended chan struct{} // nil until the job has ended
	l.held.Store(true)
	defer l.held.Store(false)
	for {
		select {
		case s.running <- struct{}{}:
			return func() { <-s.running }
		case ended <- struct{}{}:
			return func() { <-s.ended }
		case <-ending:
			ending, ended = nil, s.ended
		case <-ctx.Done():
			return nil
		}
	}
}

// read follows the log from after the last line that was acknowledged, and reports whether it was brought to its end.
func (l *logs) read(ctx context.Context) (whole bool) {
	r := l.bridge.read(l.at)
	lines := make(chan client.LogLine)
	ctx, cancel := context.WithCancel(ctx)
	failed := make(chan error, 1)
	go func() { // ends with ctx, which ends with this function; joined by lines
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
				if err := <-failed; err != nil {
					return false // what was not acknowledged is read again
				}
				b.endLine()
				return b.bring(ctx)
			}
			token(l.active)
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

// bring hands the lines to the Port until it takes them, and notes that. It returns false if ctx ended before, or on a full disk.
func (b *batch) bring(ctx context.Context) bool {
	if len(b.lines) == 0 {
		return true
	}
	br, at := b.logs.bridge, b.logs.at
	r := br.read(at)
	b.logs.held.Store(true)
	defer b.logs.held.Store(false)
	for n := 0; ; n++ {
		var err error
		b.logs.turn(func() { err = b.logs.to.Log(ctx, r.job(), b.lines) })
		if err == nil {
			break
		}
		if code := muster.CodeOf(err); slices.Contains(final, code) || code != muster.Unavailable && n+1 >= logTries {
			br.cfg.Log.Warn("the foreign server refuses lines of a log", slog.String("job", r.ID), slog.Int("lines", len(b.lines)), slog.Any("error", err))
			break
		}
		if !br.backOff(ctx, n) {
			return false
		}
	}
	b.lines = b.lines[:0]
	return br.noteLines(at, b.attempt, b.count) == nil
}

// noteLines notes which lines were acknowledged.
func (b *Bridge) noteLines(at *job, attempt, count int) error {
	return b.change(at, func(r *record) { r.Attempt, r.Lines = attempt, count })
}
