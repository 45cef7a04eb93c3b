package fleet

import (
	"context"
	"log/slog"
	"time"

	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/tasklog"
)

// taskLog is how far a task's log is.
type taskLog struct {
	size    int64
	unknown bool // the size was not looked up since the task was taken up
}

// loadLogSize looks the log's size up if it is not known. The lock of the log is held.
func (t *Task) loadLogSize(ctx context.Context) error {
	if !t.log.unknown {
		return nil
	}
	size, err := t.worker.fleet.logs.Size(ctx, t.run.Attempt)
	if err == nil {
		t.log.size, t.log.unknown = size, false
	}
	return err
}

// Log appends lines to the task's log, each without its newline, until one is over the log's bound: that and what follows is dropped, and
// the log says so. It implies Begin. It is a Conflict if the task is over.
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
	data, truncated := encodeLines(lines, run.DefaultLogCap-t.log.size)
	if len(data) == 0 {
		return nil
	}
	if err := t.appendLog(ctx, data); err != nil || !truncated {
		return err
	}
	return t.update(func() error {
		t.logTruncated = true
		return nil
	}, func() {})
}

// appendLog appends records to the log, and tells the agent. The lock of the log is held.
func (t *Task) appendLog(ctx context.Context, data []byte) error {
	size, err := t.worker.fleet.logs.Append(ctx, t.run.Attempt, t.log.size, data)
	if size > t.log.size {
		t.log.size = size
		t.mu.Lock()
		if t.reporter != nil {
			t.reporter.LogGrew(size)
		}
		t.mu.Unlock()
	}
	return err
}

// pointTimeout is how long the log may take to accept a point.
const pointTimeout = 10 * time.Second

// logPoint writes a point of what the task reported into its log. One that has no room there is dropped.
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
	if int64(len(record)) > run.DefaultLogCap-t.log.size {
		return
	}
	if err := t.appendLog(ctx, record); err != nil {
		t.worker.fleet.log.Debug("a point of a task's history is dropped", slog.String("task", t.run.Attempt.Task.String()), slog.Any("error", err))
	}
}

// encodeLines makes records of lines until one does not fit into room: in the place of that and of what follows is a word of it.
func encodeLines(lines []string, free int64) (data []byte, truncated bool) {
	now := time.Now()
	for _, line := range lines {
		complete := len(data)
		data = tasklog.AppendRecord(data, tasklog.Record{Stream: tasklog.Stdout, At: now, Data: []byte(line + "\n")})
		if int64(len(data)) > free {
			return tasklog.AppendRecord(data[:complete], tasklog.Record{Stream: tasklog.System, At: now, Data: []byte("the output is cut here\n")}), true
		}
	}
	return data, false
}

// removeLog removes the log of a task that is over.
func (t *Task) removeLog(ctx context.Context) error {
	t.logMu.Lock() // nothing is appended after that
	defer t.logMu.Unlock()
	return t.worker.fleet.logs.RemoveAttempt(ctx, t.run.Attempt)
}
