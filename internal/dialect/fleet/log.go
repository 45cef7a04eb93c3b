package fleet

import (
	"context"
	"time"

	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/tasklog"
)

// taskLog is how far a task's log is.
type taskLog struct {
	size    int64
	unknown bool // the size was not looked up since the task was taken up
	cut     bool // there is no more room
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

// Log appends lines to the task's log, each without its newline; what is over the log's bound is dropped, and the log says
// so. It implies Begin. It is a Conflict if the task is over.
func (t *Task) Log(ctx context.Context, lines ...string) error {
	if err := t.Begin(); err != nil {
		return err
	}
	t.logging.Lock()
	defer t.logging.Unlock()
	t.mu.Lock()
	err := t.closed()
	t.mu.Unlock()
	if err != nil || t.log.cut {
		return err
	}
	if err := t.measure(ctx); err != nil {
		return err
	}
	var data []byte
	now := time.Now()
	for _, line := range lines {
		data = tasklog.AppendRecord(data, tasklog.Record{Stream: tasklog.Stdout, At: now, Data: []byte(line + "\n")})
		if t.log.size+int64(len(data)) > run.DefaultLogCap {
			data = tasklog.AppendRecord(nil, tasklog.Record{Stream: tasklog.System, At: now, Data: []byte("the output is cut here\n")})
			t.log.cut = true
			break
		}
	}
	if len(data) == 0 {
		return nil
	}
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
