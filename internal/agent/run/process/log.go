package process

import (
	"context"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/tasklog"
)

// appendTimeout limits one append to the worker's log.
const appendTimeout = 30 * time.Second

// attemptLog writes Muster's lines to an attempt's log: directly until the task's process starts, then through the supervisor, which
// is the only writer from then on. Its methods may be called concurrently.
type attemptLog struct {
	appendFunc func(offset int64, data []byte) (int64, error)
	onGrow     func(size int64)

	mu     sync.Mutex
	proc   run.Proc // set when the supervisor writes the log
	offset int64
	err    error // the first failure; nothing is written after it
}

// newAttemptLog returns the log of an attempt. It keeps working after ctx ends.
func newAttemptLog(ctx context.Context, deps *Deps, id muster.AttemptID, reporter run.Reporter) *attemptLog {
	ctx = context.WithoutCancel(ctx)
	appendFunc := func(offset int64, data []byte) (int64, error) {
		ctx, cancel := context.WithTimeout(ctx, appendTimeout)
		defer cancel()
		return deps.Logs.Append(ctx, id, offset, data)
	}
	return &attemptLog{appendFunc: appendFunc, onGrow: reporter.LogGrew}
}

// handOver calls start with the size of the log. The process that it returns is the log's writer from then on.
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
		proc.AppendLog(stream, data) // without the lock: the supervisor orders records itself
	}
}

// tryAppend appends to the log if the worker is its writer. Otherwise it returns the process whose supervisor is.
func (l *attemptLog) tryAppend(stream tasklog.Stream, data []byte) run.Proc {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.proc != nil || l.err != nil {
		return l.proc
	}
	size, err := l.appendFunc(l.offset, tasklog.AppendRecord(nil, tasklog.Record{Stream: stream, At: time.Now(), Data: data}))
	if err != nil {
		l.err = run.Failf(muster.WorkerInternal, "write the task's log on the worker: %w", err)
		return nil
	}
	l.offset = size
	l.onGrow(size)
	return nil
}
