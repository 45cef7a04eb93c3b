package fleet

import (
	"context"
	"log/slog"
	"time"

	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/tasklog"
)

func (t *Task) currentLogSize() int64 {
	t.logMu.Lock()
	defer t.logMu.Unlock()
	return t.logSize
}

// loadLogSize reads the log's size if it is unknown. The caller holds logMu.
func (t *Task) loadLogSize(ctx context.Context) error {
	if !t.logUnknown {
		return nil
	}
	size, err := t.worker.fleet.logs.Size(ctx, t.run.Attempt)
	if err == nil {
		t.logSize, t.logUnknown = size, false
	}
	return err
}

// Log appends lines without newlines to the task's log. The first line beyond the log's limit and all later ones are dropped, and a line
// in the log notes that. Log implies MarkStarted. It is a Conflict if the task is done.
func (t *Task) Log(ctx context.Context, lines ...string) error {
	if err := t.MarkStarted(); err != nil {
		return err
	}
	t.logMu.Lock()
	defer t.logMu.Unlock()
	t.mu.Lock()
	err, truncated := t.checkOpen(), t.logTruncated
	t.mu.Unlock()
	if err != nil || truncated {
		return err
	}
	if err := t.loadLogSize(ctx); err != nil {
		return err
	}
	data, truncated := encodeLines(lines, run.DefaultLogCap-t.logSize)
	if len(data) == 0 {
		return nil
	}
	if err := t.appendLog(ctx, data); err != nil || !truncated {
		return err
	}
	return t.update(func() error {
		t.logTruncated = true
		return nil
	}, nil)
}

// appendLog appends records to the log and notifies the agent. The caller holds logMu.
func (t *Task) appendLog(ctx context.Context, data []byte) error {
	size, err := t.worker.fleet.logs.Append(ctx, t.run.Attempt, t.logSize, data)
	if size > t.logSize {
		t.logSize = size
		t.mu.Lock()
		if t.reporter != nil {
			t.reporter.LogGrew(size)
		}
		t.mu.Unlock()
	}
	return err
}

const pointTimeout = 10 * time.Second // for writing a point

// logPoint writes a point of the task's progress into its log. It drops a point that does not fit.
func (t *Task) logPoint(at time.Time, data []byte) {
	ctx, cancel := context.WithTimeout(context.Background(), pointTimeout)
	defer cancel()
	t.logMu.Lock()
	defer t.logMu.Unlock()
	t.mu.Lock()
	err, truncated := t.checkOpen(), t.logTruncated
	t.mu.Unlock()
	if err != nil || truncated || t.loadLogSize(ctx) != nil {
		return
	}
	record := tasklog.AppendRecord(nil, tasklog.Record{Stream: tasklog.Progress, At: at, Data: data})
	if int64(len(record)) > run.DefaultLogCap-t.logSize {
		return
	}
	if err := t.appendLog(ctx, record); err != nil {
		t.worker.fleet.log.Debug("progress point dropped", slog.String("task", t.run.Attempt.Task.String()), slog.Any("error", err))
	}
}

// encodeLines encodes lines up to free bytes. A note replaces the first line that does not fit and all later ones.
func encodeLines(lines []string, free int64) (data []byte, truncated bool) {
	now := time.Now()
	for _, line := range lines {
		complete := len(data)
		data = tasklog.AppendRecord(data, tasklog.Record{Stream: tasklog.Stdout, At: now, Data: []byte(line + "\n")})
		if int64(len(data)) > free {
			return tasklog.AppendRecord(data[:complete], tasklog.Record{Stream: tasklog.System, At: now, Data: []byte("output truncated\n")}), true
		}
	}
	return data, false
}

func (t *Task) removeLog(ctx context.Context) error {
	t.logMu.Lock()
	defer t.logMu.Unlock()
	return t.worker.fleet.logs.RemoveAttempt(ctx, t.run.Attempt)
}
