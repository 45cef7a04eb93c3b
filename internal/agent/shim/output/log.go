package output

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/progress"
	"github.com/muster-dev/muster/internal/agent/redact"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/tasklog"
)

const (
	appendTimeout = 30 * time.Second // for one write to the log
	// Usage samples have their own limit, separate from the output: eight GPUs take 50 MB a month. Messages of Muster have a bit more.
	sampleLimit = 64 << 20
	systemLimit = sampleLimit + 1<<20
	// Points have their own limit, with some room for those of checkpoints. progress.PointLogger keeps it.
	pointLimit = 2 * progress.MaxPointBytes
)

// Log appends records to an attempt's log, with limits: from the start of its process to its report it is the only writer. Its methods may be
// called concurrently.
type Log struct {
	onGrow   func(size int64)
	redactor *redact.Redactor

	mu          sync.Mutex
	writer      *tasklog.Writer
	extra       int64         // bytes that are not the task's output
	points      int64         // bytes of extra that are points
	samplesFull bool          // the samples reached their limit
	err         error         // of the first failed write of output; nothing is written after it
	failed      chan struct{} // closed when err is set
}

// OpenLog takes the log over from the worker. It fails if the log does not end where the worker stopped. redactor is for messages of Muster,
// and may be nil.
func OpenLog(logs run.Logs, s *run.StartSpec, redactor *redact.Redactor, onGrow func(int64)) (*Log, error) {
	limit := cmp.Or(max(s.LogCap, 0), int64(muster.DefaultLogCap))
	l := &Log{onGrow: onGrow, redactor: redactor, writer: tasklog.NewWriter(logs, s.Attempt, s.LogSize, limit), failed: make(chan struct{})}
	ctx, cancel := context.WithTimeout(context.Background(), appendTimeout)
	defer cancel()
	size, err := logs.Append(ctx, s.Attempt, s.LogSize, nil)
	if e, ok := errors.AsType[*muster.Error](err); err == nil && size != s.LogSize || ok && e.Code == muster.Conflict {
		return nil, run.Failf(muster.WorkerInternal, "the task's log has %d bytes where the worker wrote %d: another program writes to it", size, s.LogSize)
	}
	return l, nil
}

// Failed returns a channel that is closed when the log cannot be written.
func (l *Log) Failed() <-chan struct{} { return l.failed }

// Failure returns why the log could not be written, or nil.
func (l *Log) Failure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil && l.writer.Incomplete() {
		return run.Failf(muster.DiskFull, "cannot write the task's log on the worker")
	}
	return l.err
}

// appendOutput writes encoded records of the task's output. Beyond the limit, those at the log's beginning and at its end are kept.
func (l *Log) appendOutput(records []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return
	}
	if err := l.write(l.writer.WriteOutput, records); err != nil {
		l.err = run.Failf(muster.WorkerInternal, "cannot write the task's log on the worker: %w", err)
		close(l.failed)
	}
}

// Record writes a record that is not the task's output, with its own limit. The log mentions the end of samples at their limit. A failed write
// is ignored: a task that prints nothing needs no log.
func (l *Log) Record(stream tasklog.Stream, at time.Time, data []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := tasklog.AppendRecord(nil, tasklog.Record{Stream: stream, At: at, Data: data})
	if stream == tasklog.Progress {
		if l.points+int64(len(b)) <= pointLimit {
			l.points += l.writeExtra(b)
		}
		return
	}
	limit := int64(systemLimit)
	if stream == tasklog.Usage {
		limit = sampleLimit
	}
	if l.extra-l.points+int64(len(b)) > limit {
		if l.samplesFull || stream != tasklog.Usage {
			return
		}
		l.samplesFull = true
		b = appendSystem(nil, fmt.Sprintf("usage samples end here: they are limited to %s for each attempt", muster.Size(sampleLimit)))
	}
	l.writeExtra(b)
}

// writeExtra appends a record that is not the task's output, and returns how many bytes were written. The lock is held.
func (l *Log) writeExtra(b []byte) int64 {
	if l.err != nil {
		return 0
	}
	before := l.writer.Size()
	_ = l.write(l.writer.Write, b) // Failure reports a partial write
	n := l.writer.Size() - before
	l.extra += n
	return n
}

// WriteLine writes a line from Muster.
func (l *Log) WriteLine(line string) {
	l.Record(tasklog.System, time.Now(), []byte(l.redactor.String(line)+"\n"))
}

// write calls a method of the writer. The lock is held.
func (l *Log) write(write func(context.Context, []byte) error, records []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), appendTimeout)
	defer cancel()
	before := l.writer.Size()
	err := write(ctx, records)
	if size := l.writer.Size(); size > before {
		l.onGrow(size)
	}
	return err
}

// appendSystem encodes a line from Muster.
func appendSystem(dst []byte, line string) []byte {
	return tasklog.AppendRecord(dst, tasklog.Record{Stream: tasklog.System, At: time.Now(), Data: []byte(line + "\n")})
}
