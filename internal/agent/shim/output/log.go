package output

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/tasklog"
)

const (
	appendTimeout = 30 * time.Second // that the log may take to accept a piece
	// Samples of what the task uses have room of their own beside its output: eight GPUs for a
	// month take 50 MB. The words of Muster have a bit more, so that they come through.
	sampleLimit = 64 << 20
	systemLimit = sampleLimit + 1<<20
	// Points of what the task reports have room of their own, and a bit for the times of its checkpoints. Whoever writes them keeps to it.
	pointLimit = 2 * run.MaxPointBytes
)

// Log appends records to an attempt's log, its output up to a cap: from the start of
// its process to its report nobody else does. It may be used by several goroutines.
type Log struct {
	logs   run.Logs
	id     muster.AttemptID
	onGrow func(size int64)
	limit  int64

	mu          sync.Mutex
	offset      int64
	extra       int64         // bytes of it that are not the task's output
	points      int64         // bytes of these that are points of what it reports
	outputFull  bool          // of output
	samplesFull bool          // of samples
	partial     []byte        // of which a part is in the file already, and the rest is to follow
	err         error         // the first failure of output; nothing is written after it
	failed      chan struct{} // closed at the failure
}

// OpenLog takes the log over from the worker. It refuses one that does not end
// where the worker stopped.
func OpenLog(logs run.Logs, s *run.StartSpec, onGrow func(int64)) (*Log, error) {
	l := &Log{logs: logs, id: s.Attempt, onGrow: onGrow, limit: s.LogCap, offset: s.LogSize, failed: make(chan struct{})}
	if l.limit <= 0 {
		l.limit = run.DefaultLogCap
	}
	size, err := l.store(nil)
	if e, ok := errors.AsType[*muster.Error](err); err == nil && size != s.LogSize || ok && e.Code == muster.Conflict {
		return nil, run.Failf(muster.WorkerInternal, "the task's log has %d bytes where the worker wrote %d: another program writes to it", size, s.LogSize)
	}
	return l, nil
}

// Failed is closed when the log cannot be written.
func (l *Log) Failed() <-chan struct{} { return l.failed }

func (l *Log) store(data []byte) (int64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), appendTimeout)
	defer cancel()
	return l.logs.Append(ctx, l.id, l.offset, data)
}

// Failure returns why the log could not be written, nil if it could.
func (l *Log) Failure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil && l.partial != nil {
		return run.Failf(muster.DiskFull, "the task's log cannot be written on the worker")
	}
	return l.err
}

// appendOutput writes encoded records of the task's output, whole ones, until the log is
// full.
func (l *Log) appendOutput(records []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.outputFull {
		return
	}
	if free := l.limit - (l.offset - l.extra); int64(len(records)) > free {
		l.outputFull = true
		records = appendSystem(fittingRecords(records, free), fmt.Sprintf("the output is cut here: %s of log is the most that is kept of one attempt", muster.Size(l.limit)))
	}
	l.write(records)
}

// fittingRecords returns the whole records at the beginning that take at most room bytes.
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

// Record writes something that is not the task's output, and does not count as
// such. The log itself says where samples end that have no room any more. What the disk does not take
// is left out: a task that prints nothing needs no log.
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
		b = appendSystem(nil, fmt.Sprintf("what the task uses is no longer kept: %s of it is the most of one attempt", muster.Size(sampleLimit)))
	}
	l.writeExtra(b)
}

// writeExtra appends what is not the task's output, and returns how many bytes were written. The lock is held.
func (l *Log) writeExtra(b []byte) int64 {
	if l.err != nil {
		return 0
	}
	before := l.offset
	_ = l.appendRecords(b) // Failure tells if only a part of it could be written
	l.extra += l.offset - before
	return l.offset - before
}

// WriteLine writes a word from Muster, as a line.
func (l *Log) WriteLine(line string) { l.Record(tasklog.System, time.Now(), []byte(line+"\n")) }

func (l *Log) write(records []byte) {
	if l.err != nil {
		return
	}
	if err := l.appendRecords(records); err != nil {
		l.err = run.Failf(muster.WorkerInternal, "the task's log cannot be written on the worker: %w", err)
		close(l.failed)
	}
}

// appendRecords appends records after what was left unfinished.
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

// appendSystem encodes a line from Muster itself.
func appendSystem(dst []byte, line string) []byte {
	return tasklog.AppendRecord(dst, tasklog.Record{Stream: tasklog.System, At: time.Now(), Data: []byte(line + "\n")})
}
