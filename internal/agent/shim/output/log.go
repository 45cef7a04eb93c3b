package output

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/progress"
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
	logs   run.Logs
	id     muster.AttemptID
	onGrow func(size int64)
	limit  int64

	mu          sync.Mutex
	offset      int64
	extra       int64         // bytes that are not the task's output
	points      int64         // bytes of extra that are points
	outputFull  bool          // the output reached its limit
	samplesFull bool          // the samples reached theirs
	partial     []byte        // a part of it is in the file, and the rest is to follow
	err         error         // of the first failed write of output; nothing is written after it
	failed      chan struct{} // closed when err is set
}

// OpenLog takes the log over from the worker. It fails if the log does not end where the worker stopped.
func OpenLog(logs run.Logs, s *run.StartSpec, onGrow func(int64)) (*Log, error) {
	l := &Log{logs: logs, id: s.Attempt, onGrow: onGrow, offset: s.LogSize, failed: make(chan struct{})}
	l.limit = cmp.Or(max(s.LogCap, 0), run.DefaultLogCap)
	size, err := l.store(nil)
	if e, ok := errors.AsType[*muster.Error](err); err == nil && size != s.LogSize || ok && e.Code == muster.Conflict {
		return nil, run.Failf(muster.WorkerInternal, "the task's log has %d bytes where the worker wrote %d: another program writes to it", size, s.LogSize)
	}
	return l, nil
}

// Failed returns a channel that is closed when the log cannot be written.
func (l *Log) Failed() <-chan struct{} { return l.failed }

func (l *Log) store(data []byte) (int64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), appendTimeout)
	defer cancel()
	return l.logs.Append(ctx, l.id, l.offset, data)
}

// Failure returns why the log could not be written, or nil.
func (l *Log) Failure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil && l.partial != nil {
		return run.Failf(muster.DiskFull, "cannot write the task's log on the worker")
	}
	return l.err
}

// appendOutput writes encoded records of the task's output, until the limit.
func (l *Log) appendOutput(records []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.outputFull {
		return
	}
	if free := l.limit - (l.offset - l.extra); int64(len(records)) > free {
		l.outputFull = true
		records = appendSystem(fittingRecords(records, free), fmt.Sprintf("output truncated: the log of an attempt is limited to %s", muster.Size(l.limit)))
	}
	l.write(records)
}

// fittingRecords returns the complete records at the start that take at most limit bytes.
func fittingRecords(records []byte, limit int64) []byte {
	dec := tasklog.NewDecoder(bytes.NewReader(records))
	end := int64(0)
	for {
		if _, err := dec.Next(); err != nil || dec.Offset() > limit {
			return records[:end:end]
		}
		end = dec.Offset()
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
	before := l.offset
	_ = l.appendRecords(b) // Failure reports a partial write
	l.extra += l.offset - before
	return l.offset - before
}

// WriteLine writes a line from Muster.
func (l *Log) WriteLine(line string) { l.Record(tasklog.System, time.Now(), []byte(line+"\n")) }

func (l *Log) write(records []byte) {
	if l.err != nil {
		return
	}
	if err := l.appendRecords(records); err != nil {
		l.err = run.Failf(muster.WorkerInternal, "cannot write the task's log on the worker: %w", err)
		close(l.failed)
	}
}

// appendRecords appends records after the rest of a partial write.
func (l *Log) appendRecords(records []byte) error {
	if l.partial != nil {
		records = append(slices.Clip(l.partial), records...)
	}
	size, err := l.store(records)
	if err != nil {
		if size > l.offset && l.partial == nil {
			l.partial = bytes.Clone(records)
		}
		return err
	}
	l.partial, l.offset = nil, size
	l.onGrow(size)
	return nil
}

// appendSystem encodes a line from Muster.
func appendSystem(dst []byte, line string) []byte {
	return tasklog.AppendRecord(dst, tasklog.Record{Stream: tasklog.System, At: time.Now(), Data: []byte(line + "\n")})
}
