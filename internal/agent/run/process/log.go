package process

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/tasklog"
)

// appendWait is how long the worker's own log may take to accept a piece.
const appendWait = 30 * time.Second

// logWriter appends records to the attempt's log, up to its cap. It may be used
// by several goroutines.
type logWriter struct {
	store func(offset int64, data []byte) (int64, error)
	grew  func(size int64)
	most  int64

	mu     sync.Mutex
	offset int64
	full   bool
	err    error         // the first failure; nothing is written after it
	failed chan struct{} // closed at the failure, if broken was asked for
}

// logTo returns a writer of an attempt's log. What a task says while it is being
// stopped is written too.
func logTo(ctx context.Context, env *run.Env, id muster.AttemptID, sink run.Sink) *logWriter {
	ctx = context.WithoutCancel(ctx)
	write := func(offset int64, data []byte) (int64, error) {
		ctx, cancel := context.WithTimeout(ctx, appendWait)
		defer cancel()
		return env.Logs.Append(ctx, id, offset, data)
	}
	most := env.LogCap
	if most <= 0 {
		most = run.DefaultLogCap
	}
	return &logWriter{store: write, grew: sink.LogGrew, most: most}
}

// broken returns a channel that is closed when the log cannot be written.
func (w *logWriter) broken() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failed = make(chan struct{})
	if w.err != nil {
		close(w.failed)
	}
	return w.failed
}

func (w *logWriter) failure() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

func (w *logWriter) size() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.offset
}

// append writes encoded records, whole ones, until the log is full.
func (w *logWriter) append(records []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.full {
		return
	}
	if w.offset+int64(len(records)) > w.most {
		w.full = true
		records = system(fitting(records, w.most-w.offset), fmt.Sprintf("the output is cut here: %s of log is the most that is kept of one attempt", muster.Size(w.most)))
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

func (w *logWriter) say(line string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.full {
		w.write(system(nil, line))
	}
}

func (w *logWriter) write(records []byte) {
	if w.err != nil {
		return
	}
	size, err := w.store(w.offset, records)
	if err != nil {
		w.err = run.Failf(muster.WorkerInternal, "the task's log cannot be written on the worker: %w", err)
		if w.failed != nil {
			close(w.failed)
		}
		return
	}
	w.offset = size
	w.grew(size)
}

// system encodes a line from Muster itself.
func system(dst []byte, line string) []byte {
	return tasklog.AppendRecord(dst, tasklog.Record{Stream: tasklog.System, At: time.Now(), Data: []byte(line + "\n")})
}
