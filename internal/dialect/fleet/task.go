package fleet

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/progress"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/bootclock"
	"github.com/muster-dev/muster/internal/link"
	"github.com/muster-dev/muster/internal/tasklog"
	"github.com/muster-dev/muster/internal/wake"
)

// Task is an attempt on a worker. Its methods may be called concurrently.
type Task struct {
	worker    *Worker
	id        string
	run       *run.Task
	offeredAt time.Time

	saveMu    sync.Mutex      // held while its record is written
	logMu     sync.Mutex      // held while its log is written
	logWriter *tasklog.Writer // guarded by logMu; nil until the log is opened
	points    *progress.PointLogger
	dirMu     sync.Mutex // held while its directory is created or removed
	inputDir  string     // guarded by dirMu; "" while there is none
	started   chan struct{}
	reported  chan struct{}   // closed once the report is on disk
	ctx       context.Context //nolint:containedctx // ends when the task is done, with one of the Err…
	end       context.CancelCauseFunc

	mu             sync.Mutex
	reporter       run.Reporter // nil while no agent executes it
	startedAt      muster.Time
	latestProgress muster.Progress // for the next reporter
	artifacts      []muster.Artifact
	report         *muster.Report // nil until the worker reported or the task is done
}

// FinalReport is the end of a task, as its worker reports it.
type FinalReport struct {
	Outcome  muster.Outcome // AttemptSucceeded, AttemptFailed, AttemptTimedOut or AttemptCancelled
	Reason   muster.Reason  // of a failure
	Message  string
	ExitCode *int
	Result   json.RawMessage // one JSON value; nil for none
	Usage    *muster.Usage
}

func newTask(w *Worker, id string, rt *run.Task, offeredAt time.Time) *Task {
	t := &Task{worker: w, id: id, run: rt, offeredAt: offeredAt, started: make(chan struct{}), reported: make(chan struct{})}
	t.ctx, t.end = context.WithCancelCause(context.Background())
	t.points = progress.NewPointLogger(t.logPoint)
	return t
}

func restoreTask(w *Worker, id string, r *taskRecord) (*Task, error) {
	rt := new(run.Task)
	if err := json.Unmarshal(r.Attempt, rt); err != nil {
		return nil, err
	}
	if rt.Spec == nil {
		return nil, errNotFound
	}
	if now := bootclock.Now(); rt.Assigned > now { // from before a reboot
		rt.Assigned = now
	}
	t := newTask(w, id, rt, r.Offered.Std())
	t.artifacts = r.Artifacts
	if r.Began != 0 {
		t.startedAt = r.Began
		close(t.started)
	}
	if r.Report != nil {
		t.report = r.Report
		close(t.reported)
	}
	return t, nil
}

// ID returns the id for the foreign worker: a random UUID, which is kept over restarts.
func (t *Task) ID() string { return t.id }

// Worker returns the task's worker.
func (t *Task) Worker() *Worker { return t.worker }

// Run returns the attempt. The caller must not change it.
func (t *Task) Run() *run.Task { return t.run }

// OfferedAt returns when the server assigned the task.
func (t *Task) OfferedAt() time.Time { return t.offeredAt }

// Started reports whether the worker is known to run it.
func (t *Task) Started() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.startedAt != 0
}

// status reports whether the task has started, and whether it has no report yet.
func (t *Task) status() (started, open bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.startedAt != 0, t.cause() == nil && t.report == nil
}

// Done returns a channel that is closed once the task is done: see the Err….
func (t *Task) Done() <-chan struct{} { return t.ctx.Done() }

// cause returns nil until the task is done, and then one of the Err….
func (t *Task) cause() error { return context.Cause(t.ctx) }

// Err returns nil until the task is done, and then a Conflict with one of the Err… in its chain.
func (t *Task) Err() error {
	if cause := t.cause(); cause != nil {
		return doneError(t.run.Attempt.Task.String(), cause)
	}
	return nil
}

// checkOpen returns a Conflict if the task is done or has a report. The caller holds mu.
func (t *Task) checkOpen() error {
	if err := t.Err(); err != nil || t.report == nil {
		return err
	}
	return doneError(t.run.Attempt.Task.String(), ErrReported)
}

// update calls apply under mu and writes the record. If writing fails it calls rollback, unless that is nil. Updates of a task are
// serialized.
func (t *Task) update(apply func() error, rollback func()) error {
	t.saveMu.Lock()
	defer t.saveMu.Unlock()
	t.mu.Lock()
	if err := apply(); err != nil {
		t.mu.Unlock()
		return err
	}
	r := &taskRecord{Worker: t.worker.id, Offered: muster.NewTime(t.offeredAt), Began: t.startedAt, Artifacts: t.artifacts, Report: t.report}
	t.mu.Unlock()
	var err error
	if r.Attempt, err = t.run.State(); err == nil {
		err = t.worker.fleet.store.putTask(t.id, r)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil && rollback != nil {
		rollback()
	}
	if t.cause() != nil { // cleanup may have run before the record was written
		t.worker.fleet.writes.add(diskWrite{task: t})
	}
	return err
}

// MarkStarted records that the worker runs the task. Only the first call has an effect. It implies Worker.Touch. It is a Conflict if the
// task is done.
func (t *Task) MarkStarted() error {
	t.worker.Touch(nil)
	t.mu.Lock()
	started, err := t.startedAt != 0, t.checkOpen()
	t.mu.Unlock()
	if started || err != nil {
		return err
	}
	first := false
	err = t.update(func() error {
		if err := t.checkOpen(); err != nil {
			return err
		}
		if first = t.startedAt == 0; first {
			t.startedAt = run.Now()
		}
		return nil
	}, func() {
		if first {
			t.startedAt = 0
		}
	})
	if err != nil || !first {
		return err
	}
	t.mu.Lock()
	close(t.started)
	if t.reporter != nil {
		t.reporter.Started(t.startedAt)
	}
	t.mu.Unlock()
	wake.Set(t.worker.changed)
	return nil
}

// Progress reports progress; it implies MarkStarted. It is a Conflict if the task is done, and Invalid if the server would not accept it.
func (t *Task) Progress(p muster.Progress) error {
	p.Attempt = t.run.Attempt
	if p.Step != nil && len(*p.Step) > link.MaxStep {
		step := string(bytes.ToValidUTF8([]byte((*p.Step)[:link.MaxStep-len("…")]), nil)) + "…"
		p.Step = &step
	}
	if err := link.CheckProgress(&p); err != nil {
		return muster.Errorf(muster.Invalid, "invalid progress of %s: %w", t.run.Attempt.Task, err)
	}
	if err := t.MarkStarted(); err != nil {
		return err
	}
	if err := t.forward(p); err != nil {
		return err
	}
	t.points.Add(&p) // without mu: it may write the log
	return nil
}

func (t *Task) forward(p muster.Progress) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.checkOpen(); err != nil {
		return err
	}
	t.mergeProgress(p)
	if t.reporter != nil {
		t.reporter.Progress(p)
	}
	return nil
}

const maxMetrics = 100 // in latestProgress

// mergeProgress merges p into latestProgress. The caller holds mu.
func (t *Task) mergeProgress(p muster.Progress) {
	if p.Progress != nil {
		t.latestProgress.Progress = p.Progress
	}
	if p.Step != nil {
		t.latestProgress.Step = p.Step
	}
	if len(p.Metrics) > 0 {
		merged := map[string]float64{} // a reporter may have the old map
		maps.Copy(merged, t.latestProgress.Metrics)
		for name, v := range p.Metrics {
			if _, known := merged[name]; known || len(merged) < maxMetrics {
				merged[name] = v
			}
		}
		t.latestProgress.Metrics = merged
	}
}

// Finish ends the task. It returns nil only when the server has the report on disk. After an error other than Conflict and
// Invalid the report may be stored, and is sent until the server has it; the caller may repeat the call. It is a Conflict
// if the task is done or has another report.
func (t *Task) Finish(ctx context.Context, end FinalReport) error {
	t.worker.Touch(nil)
	if end.Outcome == muster.AttemptLost { // link.CheckReport refuses the others
		return muster.Errorf(muster.Invalid, "a worker cannot report the outcome %q", end.Outcome)
	}
	report := &muster.Report{
		Attempt: t.run.Attempt, Outcome: end.Outcome, Reason: end.Reason, Message: end.Message, ExitCode: end.ExitCode, Result: end.Result, Usage: end.Usage,
		FinishedAt: run.Now(),
	}
	t.points.Flush() // while the log is open
	err := t.update(func() error {
		if t.report != nil && t.cause() == nil && sameReport(t.report, &end) {
			return errSameReport
		}
		if err := t.checkOpen(); err != nil {
			return err
		}
		if report.StartedAt = t.startedAt; t.startedAt == 0 {
			report.StartedAt = report.FinishedAt
		}
		report.Artifacts = t.artifacts
		if err := link.CheckReport(report); err != nil {
			return muster.Errorf(muster.Invalid, "invalid report of %s: %w", t.run.Attempt.Task, err)
		}
		t.report = report
		return nil
	}, func() { t.report = nil })
	switch {
	case err == nil:
		t.logMu.Lock() // wait for a running Log
		close(t.reported)
		t.logMu.Unlock()
		wake.Set(t.worker.changed)
	case !errors.Is(err, errSameReport):
		return err
	}
	select {
	case <-t.ctx.Done():
	case <-ctx.Done():
		return muster.Errorf(muster.Unavailable, "the server has not confirmed the report of %s yet; it is stored", t.run.Attempt.Task)
	}
	if t.cause() != ErrReported { //nolint:errorlint // never wrapped
		return t.Err()
	}
	return nil
}

var errSameReport = errors.New("the report is stored already")

// sameReport reports whether r was built from an equal end.
func sameReport(r *muster.Report, end *FinalReport) bool {
	return r.Outcome == end.Outcome && r.Reason == end.Reason && r.Message == end.Message && reflect.DeepEqual(r.ExitCode, end.ExitCode) &&
		bytes.Equal(compactJSON(r.Result), compactJSON(end.Result))
}

// compactJSON returns a JSON value without white space, which records do not keep.
func compactJSON(raw json.RawMessage) []byte {
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return raw
	}
	return b.Bytes()
}

// Requeue returns the task to the server, which assigns it again, for example after its worker restarted and lost it. It is a Conflict
// if the task is done.
func (t *Task) Requeue(reason string) error {
	return t.abort(ErrReturned, muster.Report{Outcome: muster.AttemptLost, Reason: muster.WorkerRestarted, Message: reason})
}

// abort ends the task with a report for the server. It is a Conflict if the task is done or has a report.
func (t *Task) abort(cause error, report muster.Report) error {
	t.mu.Lock()
	if err := t.checkOpen(); err != nil {
		t.mu.Unlock()
		return err
	}
	report.Attempt = t.run.Attempt
	report.StartedAt, report.Artifacts = t.startedAt, t.artifacts
	t.report = &report
	orphan := t.startedAt != 0 && cause != ErrReturned //nolint:errorlint // never wrapped
	t.end(cause)
	t.mu.Unlock()
	t.release(orphan)
	return nil
}

// acknowledge ends a task with a report: the server recorded it, or does not want it.
func (t *Task) acknowledge(recorded bool) {
	t.mu.Lock()
	if t.cause() != nil || t.report == nil {
		t.mu.Unlock()
		return
	}
	if recorded {
		t.end(ErrReported)
	} else {
		t.end(ErrAbandoned)
	}
	t.mu.Unlock()
	t.release(false)
}

func (t *Task) finished() finishedTask {
	return finishedTask{Worker: t.worker.id, Cause: causeNames[t.cause()], Task: t.run.Attempt.Task.String()}
}

// release removes the task from its worker. An orphan may still run there.
func (t *Task) release(orphan bool) {
	w, f := t.worker, t.worker.fleet
	f.mu.Lock()
	delete(f.tasks, t.id)
	f.finished[t.id] = t.finished()
	f.mu.Unlock()
	w.mu.Lock()
	delete(w.tasks, t.id)
	if orphan {
		if w.orphans == nil {
			w.orphans = map[string]string{}
		}
		w.orphans[t.id] = fmt.Sprintf("may still run %s (%s): workers of %s cannot be stopped", t.run.Attempt.Task, orphanCauses[t.cause()], f.cfg.System)
		w.constrainOrphans()
	}
	w.mu.Unlock()
	end := diskWrite{task: t}
	if orphan {
		end.worker = w
	}
	f.writes.add(end)
	wake.Set(w.changed)
}

// cleanup removes a task that is done from disk.
func (t *Task) cleanup() {
	f := t.worker.fleet
	t.saveMu.Lock()
	err := f.store.moveToFinished(t.id, t.finished())
	t.saveMu.Unlock()
	if err == nil {
		f.mu.Lock()
		delete(f.finished, t.id)
		f.mu.Unlock()
	} else {
		f.log.Error("cannot remove a task from disk", slog.String("task", t.run.Attempt.String()), slog.Any("error", err))
	}
	if err := t.removeDir(); err != nil {
		f.log.Error("cannot remove the directory of a task", slog.String("task", t.run.Attempt.String()), slog.Any("error", err))
	}
}

// Why a task is done, in the chain of the errors of Task.Err and Fleet.ReportLate.
var (
	ErrReported  = errors.New("its final report was accepted")
	ErrCancelled = errors.New("it was cancelled")
	ErrTimedOut  = errors.New("it timed out")
	ErrAbandoned = errors.New("its worker was unreachable for too long")
	ErrReturned  = errors.New("it was requeued")
)

var ( //nolint:gochecknoglobals // constant tables
	// causeNames has the names of causes on disk.
	causeNames = map[error]string{ErrReported: "reported", ErrCancelled: "cancelled", ErrTimedOut: "timed_out", ErrAbandoned: "given_up", ErrReturned: "returned"}
	// orphanCauses has the texts for the causes that make a task an orphan.
	orphanCauses = map[error]string{ErrCancelled: "cancelled", ErrTimedOut: "timed out", ErrAbandoned: "abandoned"}
)

func parseCause(name string) error {
	for cause, n := range causeNames {
		if n == name {
			return cause
		}
	}
	return ErrAbandoned
}

func doneError(task string, cause error) error {
	return muster.Errorf(muster.Conflict, "task %s is done: %w", task, cause)
}
