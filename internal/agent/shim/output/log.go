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
	appendWait = 30 * time.Second // that the log may take to accept a piece
	// Samples of what the task uses have room of their own beside its output: eight GPUs for a
	// month take 50 MB. The words of Muster have a bit more, so that they come through.
	sampleRoom = 64 << 20
	wordRoom   = sampleRoom + 1<<20
	// Points of what the task reports have room of their own, and a bit for the times of its checkpoints. Whoever writes them keeps to it.
	pointRoom = 2 * run.PointRoom
)

// Log appends records to an attempt's log, its output up to a cap: from the start of
// its process to its report nobody else does. It may be used by several goroutines.
type Log struct {
	logs run.Logs
	id   muster.AttemptID
	grew func(size int64)
	most int64

	mu     sync.Mutex
	offset int64
	beside int64         // bytes of it that are not the task's output
	points int64         // bytes of these that are points of what it reports
	full   bool          // of output
	enough bool          // of samples
	begun  []byte        // of which a part is in the file already, and the rest is to follow
	err    error         // the first failure of output; nothing is written after it
	failed chan struct{} // closed at the failure
}

// Take takes the log over from the worker. It refuses one that does not end
// where the worker stopped.
func Take(logs run.Logs, s *run.Start, grew func(int64)) (*Log, error) {
	w := &Log{logs: logs, id: s.Attempt, grew: grew, most: s.LogCap, offset: s.LogSize, failed: make(chan struct{})}
	if w.most <= 0 {
		w.most = run.DefaultLogCap
	}
	size, err := w.store(nil)
	if e, ok := errors.AsType[*muster.Error](err); err == nil && size != s.LogSize || ok && e.Code == muster.Conflict {
		return nil, run.Failf(muster.WorkerInternal, "the task's log has %d bytes where the worker wrote %d: another program writes to it", size, s.LogSize)
	}
	return w, nil
}

// Failed is closed when the log cannot be written.
func (w *Log) Failed() <-chan struct{} { return w.failed }

func (w *Log) store(data []byte) (int64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), appendWait)
	defer cancel()
	return w.logs.Append(ctx, w.id, w.offset, data)
}

// Failure returns why the log could not be written, nil if it could.
func (w *Log) Failure() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil && w.begun != nil {
		return run.Failf(muster.DiskFull, "the task's log cannot be written on the worker")
	}
	return w.err
}

// append writes encoded records of the task's output, whole ones, until the log is
// full.
func (w *Log) append(records []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.full {
		return
	}
	if room := w.most - (w.offset - w.beside); int64(len(records)) > room {
		w.full = true
		records = system(fitting(records, room), fmt.Sprintf("the output is cut here: %s of log is the most that is kept of one attempt", muster.Size(w.most)))
	}
	w.write(records)
}

// fitting returns the whole records at the beginning that take at most room bytes.
func fitting(records []byte, room int64) []byte {
	dec := tasklog.NewDecoder(bytes.NewReader(records))
	end := int64(0)
	for {
		if _, err := dec.Next(); err != nil || dec.Offset() > room {
			return records[:end:end]
		}
		end = dec.Offset()
	}
}

// Record writes something that is not the task's output, and does not count as
// such. The log itself says where samples end that have no room any more. What the disk does not take
// is left out: a task that prints nothing needs no log.
func (w *Log) Record(stream tasklog.Stream, at time.Time, data []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	b := tasklog.AppendRecord(nil, tasklog.Record{Stream: stream, At: at, Data: data})
	if stream == tasklog.Progress {
		if w.points+int64(len(b)) <= pointRoom {
			w.points += w.putBeside(b)
		}
		return
	}
	room := int64(wordRoom)
	if stream == tasklog.Usage {
		room = sampleRoom
	}
	if w.beside-w.points+int64(len(b)) > room {
		if w.enough || stream != tasklog.Usage {
			return
		}
		w.enough = true
		b = system(nil, fmt.Sprintf("what the task uses is no longer kept: %s of it is the most of one attempt", muster.Size(sampleRoom)))
	}
	w.putBeside(b)
}

// putBeside appends what is not the task's output, and returns how many bytes were written. The lock is held.
func (w *Log) putBeside(b []byte) int64 {
	if w.err != nil {
		return 0
	}
	before := w.offset
	_ = w.put(b) // Failure tells if only a part of it could be written
	w.beside += w.offset - before
	return w.offset - before
}

// Say writes a word from Muster, as a line.
func (w *Log) Say(line string) { w.Record(tasklog.System, time.Now(), []byte(line+"\n")) }

func (w *Log) write(records []byte) {
	if w.err != nil {
		return
	}
	if err := w.put(records); err != nil {
		w.err = run.Failf(muster.WorkerInternal, "the task's log cannot be written on the worker: %w", err)
		close(w.failed)
	}
}

// put appends records after what was left unfinished.
func (w *Log) put(records []byte) error {
	if w.begun != nil {
		records = append(slices.Clip(w.begun), records...)
	}
	size, err := w.store(records)
	if err != nil {
		if size > w.offset && w.begun == nil {
			w.begun = bytes.Clone(records)
		}
		return err
	}
	w.begun, w.offset = nil, size
	w.grew(size)
	return nil
}

// system encodes a line from Muster itself.
func system(dst []byte, line string) []byte {
	return tasklog.AppendRecord(dst, tasklog.Record{Stream: tasklog.System, At: time.Now(), Data: []byte(line + "\n")})
}
