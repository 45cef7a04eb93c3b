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

// measure looks the log's size up if it is not known. The lock of the log is held.
func (t *Task) measure(ctx context.Context) error {
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
	if err := t.Begin(); err != nil {
		return err
	}
	t.logging.Lock()
	defer t.logging.Unlock()
	t.mu.Lock()
	err, cut := t.closed(), t.cut
	t.mu.Unlock()
	if err != nil || cut {
		return err
	}
	if err := t.measure(ctx); err != nil {
		return err
	}
	data, cut := records(lines, run.DefaultLogCap-t.log.size)
	if len(data) == 0 {
		return nil
	}
	if err := t.append(ctx, data); err != nil || !cut {
		return err
	}
	return t.save(func() error {
		t.cut = true
		return nil
	}, func() {})
}

// append appends records to the log, and tells the agent. The lock of the log is held.
func (t *Task) append(ctx context.Context, data []byte) error {
	size, err := t.worker.fleet.logs.Append(ctx, t.run.Attempt, t.log.size, data)
	if size > t.log.size {
		t.log.size = size
		t.mu.Lock()
		if t.sink != nil {
			t.sink.LogGrew(size)
		}
		t.mu.Unlock()
	}
	return err
}

// pointWait is how long the log may take to accept a point.
const pointWait = 10 * time.Second

// logPoint writes a point of what the task reported into its log. One that has no room there is dropped.
func (t *Task) logPoint(at time.Time, data []byte) {
	ctx, cancel := context.WithTimeout(context.Background(), pointWait)
	defer cancel()
	t.logging.Lock()
	defer t.logging.Unlock()
	t.mu.Lock()
	err, cut := t.closed(), t.cut
	t.mu.Unlock()
	if err != nil || cut || t.measure(ctx) != nil {
		return
	}
	record := tasklog.AppendRecord(nil, tasklog.Record{Stream: tasklog.Progress, At: at, Data: data})
	if int64(len(record)) > run.DefaultLogCap-t.log.size {
		return
	}
	if err := t.append(ctx, record); err != nil {
		t.worker.fleet.log.Debug("a point of a task's history is dropped", slog.String("task", t.run.Attempt.Task.String()), slog.Any("error", err))
	}
}

// records makes records of lines until one does not fit into room: in the place of that and of what follows is a word of it.
func records(lines []string, room int64) (data []byte, cut bool) {
	now := time.Now()
	for _, line := range lines {
		whole := len(data)
		data = tasklog.AppendRecord(data, tasklog.Record{Stream: tasklog.Stdout, At: now, Data: []byte(line + "\n")})
		if int64(len(data)) > room {
			return tasklog.AppendRecord(data[:whole], tasklog.Record{Stream: tasklog.System, At: now, Data: []byte("the output is cut here\n")}), true
		}
	}
	return data, false
}

// removeLog removes the log of a task that is over.
func (t *Task) removeLog(ctx context.Context) error {
	t.logging.Lock() // nothing is appended after that
	defer t.logging.Unlock()
	return t.worker.fleet.logs.RemoveAttempt(ctx, t.run.Attempt)
}
