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
	"github.com/muster-dev/muster/internal/wake"
)

const (
	logFlushInterval = time.Second // between two batches of lines
	maxLogBatch      = 500         // lines
	maxLogLine       = 16 << 10    // bytes of one line; the rest is dropped
	maxLogTries      = 8           // after errors other than Unavailable
)

// LogLimiter bounds how many logs are read concurrently, because a server bounds the streams of an API key.
type LogLimiter struct{ running, ended chan struct{} }

// NewLogLimiter allows 40 logs of running jobs, and ten more of jobs that have ended.
func NewLogLimiter() *LogLimiter {
	return &LogLimiter{running: make(chan struct{}, 40), ended: make(chan struct{}, 10)}
}

// logForwarder sends the log of a job's first task to the Reporter, if that is a LogReporter. One goroutine calls its methods.
type logForwarder struct {
	bridge   *Bridge
	job      *job
	reporter LogReporter        // nil if there is nothing to do
	cancel   context.CancelFunc // nil until start
	jobEnded chan struct{}      // closed when the job has ended
	activity chan struct{}      // a token if lines came
	blocked  atomic.Bool        // waiting for the foreign server or for LogLimiter
	done     chan struct{}      // closed when run has returned
	reportMu sync.Mutex         // Progress and Log of a job do not overlap
}

func (b *Bridge) newLogForwarder(j *job) *logForwarder {
	l := &logForwarder{bridge: b, job: j, jobEnded: make(chan struct{}), activity: wake.New(), done: make(chan struct{})}
	l.reporter, _ = b.reporter.(LogReporter)
	return l
}

// start starts reading at its first call.
func (l *logForwarder) start(ctx context.Context) {
	if l.reporter == nil || l.cancel != nil {
		return
	}
	ctx, l.cancel = context.WithCancel(ctx)
	go l.run(ctx) // joined by stop
}

// drain waits for the end of the log of a job that has ended, while lines come or the forwarder is blocked.
func (l *logForwarder) drain(ctx context.Context) {
	if l.cancel == nil {
		return
	}
	close(l.jobEnded)
	for {
		select {
		case <-l.done:
			return
		case <-l.activity:
		case <-time.After(l.bridge.cfg.LogDrainTimeout):
			if !l.blocked.Load() {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

func (l *logForwarder) stop() {
	if l.cancel != nil {
		l.cancel()
		<-l.done
	}
}

func (l *logForwarder) run(ctx context.Context) {
	defer close(l.done)
	release := l.acquireSlot(ctx)
	if release == nil {
		return
	}
	defer release()
	for n := 0; !l.read(ctx); n++ {
		if !l.bridge.backoff(ctx, n) {
			return
		}
	}
}

// acquireSlot waits for a slot of LogLimiter and returns how to release it, nil if ctx ended.
func (l *logForwarder) acquireSlot(ctx context.Context) (release func()) {
	s, ending := l.bridge.cfg.LogLimiter, l.jobEnded
	var ended chan struct{} // nil until the job has ended
	l.blocked.Store(true)
	defer l.blocked.Store(false)
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

// read follows the log from the first line that is not acknowledged, and reports whether it sent the log to its end.
func (l *logForwarder) read(ctx context.Context) (complete bool) {
	r := l.bridge.snapshot(l.job)
	opts := client.LogOptions{Follow: true, After: r.LogID}
	if r.LogID == "" {
		opts.Attempt = r.Attempt
	}
	lines := make(chan client.LogLine)
	ctx, cancel := context.WithCancel(ctx)
	var failed error // of the reader; read after lines is closed
	go func() {      // ends with ctx; joined by lines
		defer close(lines)
		task := muster.TaskID{Job: r.Job}
		for line, err := range l.bridge.cfg.Client.Logs(ctx, task, opts) {
			if failed = err; err != nil {
				return
			}
			select {
			case lines <- line:
			case <-ctx.Done():
				failed = ctx.Err()
				return
			}
		}
	}()
	defer func() {
		cancel()
		for range lines { // until the reader has ended
		}
	}()
	b := &batch{logs: l, attempt: r.Attempt, acked: r.Lines}
	tick := time.Tick(logFlushInterval)
	for {
		select {
		case line, ok := <-lines:
			if !ok {
				if failed != nil {
					return false // the next call reads what is not acknowledged
				}
				b.endLine()
				return b.flush(ctx)
			}
			wake.Set(l.activity)
			b.add(line)
			if len(b.lines) >= maxLogBatch && !b.flush(ctx) {
				return false
			}
		case <-tick:
			if !b.flush(ctx) {
				return false
			}
		}
	}
}

type batch struct {
	logs    *logForwarder
	attempt int
	acked   int // lines of attempt
	count   int // whole lines of attempt, read so far
	partial bytes.Buffer
	lastID  string // of what was read last
	id      string // of the end of the last whole line
	lines   []string
}

func (b *batch) add(line client.LogLine) {
	if line.Attempt != b.attempt {
		b.endLine()
		b.attempt, b.acked, b.count = line.Attempt, 0, 0
	}
	if free := maxLogLine - b.partial.Len(); free > 0 {
		b.partial.Write(line.Data[:min(len(line.Data), free)])
	}
	b.lastID = line.ID
	if bytes.HasSuffix(line.Data, []byte("\n")) {
		b.endLine()
	}
}

func (b *batch) endLine() {
	if b.partial.Len() == 0 {
		return
	}
	text := strings.ToValidUTF8(strings.TrimRight(b.partial.String(), "\r\n"), "\uFFFD")
	b.partial.Reset()
	b.id = b.lastID
	if b.count++; b.count > b.acked {
		b.lines = append(b.lines, text)
	}
}

// flush sends the lines until the Reporter accepts them, and records that. It returns false if ctx ended, or if the disk is full.
func (b *batch) flush(ctx context.Context) bool {
	if len(b.lines) == 0 {
		return true
	}
	br, j := b.logs.bridge, b.logs.job
	r := br.snapshot(j)
	b.logs.blocked.Store(true)
	defer b.logs.blocked.Store(false)
	for n := 0; ; n++ {
		b.logs.reportMu.Lock()
		err := b.logs.reporter.Log(ctx, r.job(), b.lines)
		b.logs.reportMu.Unlock()
		if err == nil {
			break
		}
		if code := muster.CodeOf(err); slices.Contains(permanentErrors, code) || code != muster.Unavailable && n+1 >= maxLogTries {
			br.cfg.Log.Warn("foreign server refused log lines", slog.String("job", r.ID), slog.Int("lines", len(b.lines)), slog.Any("error", err))
			break
		}
		if !br.backoff(ctx, n) {
			return false
		}
	}
	b.lines = b.lines[:0]
	return br.update(j, func(r *record) { r.Attempt, r.Lines, r.LogID = b.attempt, 0, b.id }) == nil
}
