package fleet

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/tasklog"
)

func (t *Task) currentLogSize() int64 {
	t.logMu.Lock()
	defer t.logMu.Unlock()
	if t.logWriter == nil {
		return 0
	}
	return t.logWriter.Size()
}

// openLog returns the writer of the log, which is opened if needed. The caller holds logMu.
func (t *Task) openLog() (w *tasklog.Writer, err error) {
	if t.logWriter == nil {
		t.logWriter, err = tasklog.ResumeWriter(t.worker.fleet.logs, t.run.Attempt, int64(cmp.Or(t.run.Spec.LogCap, muster.DefaultLogCap)))
	}
	return t.logWriter, err
}

// Log appends lines without newlines to the task's log. Beyond the log's limit, those at its beginning and at its end are kept. Log implies
// MarkStarted. It is a Conflict if the task is done.
func (t *Task) Log(ctx context.Context, lines ...string) error {
	if err := t.MarkStarted(); err != nil {
		return err
	}
	var data []byte
	now := time.Now()
	for _, line := range lines {
		data = tasklog.AppendRecord(data, tasklog.Record{Stream: tasklog.Stdout, At: now, Data: []byte(line + "\n")})
	}
	return t.writeLog(func(w *tasklog.Writer) error { return w.WriteOutput(ctx, data) })
}

// writeLog calls write unless the task is done, and notifies the agent.
func (t *Task) writeLog(write func(w *tasklog.Writer) error) error {
	t.logMu.Lock()
	defer t.logMu.Unlock()
	t.mu.Lock()
	err := t.checkOpen()
	t.mu.Unlock()
	if err != nil {
		return err
	}
	w, err := t.openLog()
	if err != nil {
		return err
	}
	before := w.Size()
	err = write(w)
	if size := w.Size(); size > before {
		t.mu.Lock()
		if t.reporter != nil {
			t.reporter.LogGrew(size)
		}
		t.mu.Unlock()
	}
	return err
}

const pointTimeout = 10 * time.Second // for writing a point

// logPoint writes a point of the task's progress into its log. progress.PointLogger limits them.
func (t *Task) logPoint(at time.Time, data []byte) {
	ctx, cancel := context.WithTimeout(context.Background(), pointTimeout)
	defer cancel()
	record := tasklog.AppendRecord(nil, tasklog.Record{Stream: tasklog.Progress, At: at, Data: data})
	if err := t.writeLog(func(w *tasklog.Writer) error { return w.Write(ctx, record) }); err != nil {
		t.worker.fleet.log.Debug("progress point dropped", slog.String("task", t.run.Attempt.Task.String()), slog.Any("error", err))
	}
}

func (t *Task) removeLog(ctx context.Context) error {
	t.logMu.Lock()
	defer t.logMu.Unlock()
	return t.worker.fleet.logs.RemoveAttempt(ctx, t.run.Attempt)
}
