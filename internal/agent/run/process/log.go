package process

import (
	"context"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/tasklog"
)

// appendTimeout is how long the worker's own log may take to accept a piece.
const appendTimeout = 30 * time.Second

// attemptLog is where the words from Muster go: the worker writes the log until the
// task's process starts, and from then on only the supervisor does. It may be used
// by several goroutines.
type attemptLog struct {
	appendFunc func(offset int64, data []byte) (int64, error)
	onGrow     func(size int64)

	mu     sync.Mutex
	proc   run.Proc // once the log is the supervisor's
	offset int64
	err    error // the first failure; nothing is written after it
}

// newAttemptLog returns the log of an attempt. What is said while it is being stopped is
// written too.
func newAttemptLog(ctx context.Context, deps *run.Deps, id muster.AttemptID, reporter run.Reporter) *attemptLog {
	ctx = context.WithoutCancel(ctx)
	appendFunc := func(offset int64, data []byte) (int64, error) {
		ctx, cancel := context.WithTimeout(ctx, appendTimeout)
		defer cancel()
		return deps.Logs.Append(ctx, id, offset, data)
	}
	return &attemptLog{appendFunc: appendFunc, onGrow: reporter.LogGrew}
}

// handOver calls start with the size of the log, and leaves the log to what it
// returns.
func (l *attemptLog) handOver(start func(size int64) (run.Proc, error)) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	p, err := start(l.offset)
	if err != nil {
		return err
	}
	l.proc = p
	return nil
}

func (l *attemptLog) failure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

func (l *attemptLog) size() int64 {
	l.mu.Lock()
	proc, offset := l.proc, l.offset
	l.mu.Unlock()
	if proc != nil {
		return proc.LogSize()
	}
	return offset
}

func (l *attemptLog) logLine(line string) { l.record(tasklog.System, []byte(line+"\n")) }

func (l *attemptLog) record(stream tasklog.Stream, data []byte) {
	if proc := l.tryAppend(stream, data); proc != nil {
		proc.AppendLog(stream, data) // without the lock: the supervisor has a log of its own order
	}
}

// tryAppend appends to the log as long as it is the worker's. Then it returns what writes it.
func (l *attemptLog) tryAppend(stream tasklog.Stream, data []byte) run.Proc {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.proc != nil || l.err != nil {
		return l.proc
	}
	size, err := l.appendFunc(l.offset, tasklog.AppendRecord(nil, tasklog.Record{Stream: stream, At: time.Now(), Data: data}))
	if err != nil {
		l.err = run.Failf(muster.WorkerInternal, "the task's log cannot be written on the worker: %w", err)
		return nil
	}
	l.offset = size
	l.onGrow(size)
	return nil
}
