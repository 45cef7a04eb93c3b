package fleet

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/link"
	"github.com/muster-dev/muster/internal/wake"
)

// Task is one attempt that a worker holds. Its methods may be called at the same time.
type Task struct {
	worker    *Worker
	id        string
	run       *run.Task
	offeredAt time.Time

	saveMu   sync.Mutex // held while its record is written
	logMu    sync.Mutex // held while its log is written
	log      taskLog    // guarded by logging
	points   *run.PointLogger
	dirMu    sync.Mutex // held while its folder is laid out or removed
	inputDir string     // guarded by laying; "" while there is none
	started  chan struct{}
	reported chan struct{} // closed once the report is on disk
	done     chan struct{}

	mu             sync.Mutex
	reporter       run.Reporter // nil while no agent executes it
	startedAt      muster.Time
	latestProgress muster.Progress // for the next sink
	artifacts      []muster.Artifact
	logTruncated   bool           // the log has no more room
	report         *muster.Report // once it was finished, or is over
	cause          error
}

// FinalReport is how a task ended on its worker.
type FinalReport struct {
	Outcome  muster.Outcome // AttemptSucceeded, AttemptFailed, AttemptTimedOut or AttemptCancelled
	Reason   muster.Reason  // of a failure
	Message  string
	ExitCode *int
	Result   json.RawMessage // one JSON value; nil for none
	Usage    *muster.Usage
}

func newTask(w *Worker, id string, rt *run.Task, offeredAt time.Time) *Task {
	t := &Task{
		worker: w, id: id, run: rt, offeredAt: offeredAt,
		started: make(chan struct{}), reported: make(chan struct{}), done: make(chan struct{}),
	}
	t.points = run.NewPointLogger(t.logPoint)
	return t
}

// restoreTask makes a task of its record.
func restoreTask(w *Worker, id string, r *taskRecord) (*Task, error) {
	rt := new(run.Task)
	if err := json.Unmarshal(r.Attempt, rt); err != nil {
		return nil, err
	}
	if rt.Spec == nil {
		return nil, errNotFound
	}
	if now := run.BootClock(); rt.Assigned > now { // of an earlier life of the machine
		rt.Assigned = now
	}
	t := newTask(w, id, rt, r.Offered.Std())
	t.artifacts, t.logTruncated = r.Artifacts, r.LogTruncated
	if r.Began != 0 {
		t.startedAt = r.Began
		close(t.started)
	}
	if r.Report != nil {
		t.report = r.Report
		close(t.reported)
	}
	t.log.unknown = true
	return t, nil
}

// EventID names the attempt to the foreign worker: a random UUID, the same after restarts.
func (t *Task) ID() string { return t.id }

// Worker is who holds it.
func (t *Task) Worker() *Worker { return t.worker }

// Run returns what is to be done. It is not to be changed.
func (t *Task) Run() *run.Task { return t.run }

// OfferedAt is when the worker's fleet received it.
func (t *Task) OfferedAt() time.Time { return t.offeredAt }

// Started reports whether the worker is known to run it.
func (t *Task) Started() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.startedAt != 0
}

// status reports whether the task began, and whether it is neither over nor finished.
func (t *Task) status() (started, open bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.startedAt != 0, t.cause == nil && t.report == nil
}

// Done is closed once the task is over: reported, cancelled, timed out, given up or handed back.
func (t *Task) Done() <-chan struct{} { return t.done }

// Err returns nil until the task is over, and then a Conflict that says why, with one of the Err… in its chain.
func (t *Task) Err() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.cause == nil {
		return nil
	}
	return doneError(t.run.Attempt.Task.String(), t.cause)
}

// checkOpen returns a Conflict if nothing of the task is taken any more. The lock is held.
func (t *Task) checkOpen() error {
	switch {
	case t.cause != nil:
		return doneError(t.run.Attempt.Task.String(), t.cause)
	case t.report != nil:
		return doneError(t.run.Attempt.Task.String(), ErrReported)
	default:
		return nil
	}
}

// update changes the task and writes its record before anything else happens to it. With an error of change, or of the
// disk, nothing has changed: undo is called for the latter.
func (t *Task) update(apply func() error, rollback func()) error {
	t.saveMu.Lock()
	defer t.saveMu.Unlock()
	t.mu.Lock()
	if err := apply(); err != nil {
		t.mu.Unlock()
		return err
	}
	r := &taskRecord{Worker: t.worker.id, Offered: muster.NewTime(t.offeredAt), Began: t.startedAt, Artifacts: t.artifacts, LogTruncated: t.logTruncated, Report: t.report}
	t.mu.Unlock()
	var err error
	if r.Attempt, err = t.run.State(); err == nil {
		err = t.worker.fleet.store.putTask(t.id, r)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil {
		rollback()
	}
	if t.cause != nil { // meanwhile; its record may have been removed before it was written here
		t.worker.fleet.enqueue(diskWrite{task: t})
	}
	return err
}

// MarkStarted takes the first sign that the worker runs it. Later calls do nothing. It is a Conflict if the task is over. As all that a worker says
// of a task it is a Touch.
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

// Progress passes on a sign of life; it implies Begin. It is a Conflict if the task is over, and Invalid if the server would not
// take it.
func (t *Task) Progress(p muster.Progress) error {
	p.Attempt = t.run.Attempt
	if p.Step != nil && len(*p.Step) > link.MaxStep {
		step := string(bytes.ToValidUTF8([]byte((*p.Step)[:link.MaxStep-len("…")]), nil)) + "…"
		p.Step = &step
	}
	if err := link.CheckProgress(&p); err != nil {
		return muster.Errorf(muster.Invalid, "the progress of %s is not taken: %w", t.run.Attempt.Task, err)
	}
	if err := t.MarkStarted(); err != nil {
		return err
	}
	if err := t.forward(p); err != nil {
		return err
	}
	t.points.Add(&p) // without the lock: it may write the log
	return nil
}

// forward tells the agent of a progress.
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

// maxMetrics is how many names of metrics are remembered for the next agent.
const maxMetrics = 100

// mergeProgress merges a progress into what the next agent is told. The lock is held.
func (t *Task) mergeProgress(p muster.Progress) {
	if p.Progress != nil {
		t.latestProgress.Progress = p.Progress
	}
	if p.Step != nil {
		t.latestProgress.Step = p.Step
	}
	if len(p.Metrics) > 0 {
		t.latestProgress.Metrics = maps.Clone(t.latestProgress.Metrics) // an agent may have the old one
		for name, v := range p.Metrics {
			if t.latestProgress.Metrics == nil {
				t.latestProgress.Metrics = map[string]float64{}
			}
			if _, known := t.latestProgress.Metrics[name]; known || len(t.latestProgress.Metrics) < maxMetrics {
				t.latestProgress.Metrics[name] = v
			}
		}
	}
}

// Finish ends the task. It returns nil only when the server has the report on disk; with another error than Conflict or
// Invalid the report may be kept, and is sent until the server has it: to repeat the same call is right. It is a Conflict
// if the task is over, or has another report.
func (t *Task) Finish(ctx context.Context, end FinalReport) error {
	t.worker.Touch(nil)
	report, err := t.buildReport(&end)
	if err != nil {
		return err
	}
	t.points.Flush() // while the log still takes it
	duplicate := false
	err = t.update(func() error {
		if t.report != nil && t.cause == nil && sameReport(t.report, &end) {
			duplicate = true
			return errNotFound // nothing to write
		}
		if err := t.checkOpen(); err != nil {
			return err
		}
		if report.StartedAt = t.startedAt; t.startedAt == 0 {
			report.StartedAt = report.FinishedAt
		}
		report.Artifacts = t.artifacts
		if err := link.CheckReport(report); err != nil {
			return muster.Errorf(muster.Invalid, "the report of %s is not taken: %w", t.run.Attempt.Task, err)
		}
		t.report = report
		return nil
	}, func() { t.report = nil })
	if err != nil && !duplicate {
		return err
	}
	if !duplicate {
		t.logMu.Lock() // what is under way comes before the end
		close(t.reported)
		t.logMu.Unlock()
		wake.Set(t.worker.changed)
	}
	select {
	case <-t.done:
	case <-ctx.Done():
		return muster.Errorf(muster.Unavailable, "the server has not confirmed the report of %s yet; it is kept", t.run.Attempt.Task)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.cause != ErrReported { //nolint:errorlint // it is one of them
		return doneError(t.run.Attempt.Task.String(), t.cause)
	}
	return nil
}

// buildReport makes a report of how a task ended.
func (t *Task) buildReport(end *FinalReport) (*muster.Report, error) {
	switch end.Outcome {
	case muster.AttemptSucceeded, muster.AttemptFailed, muster.AttemptTimedOut, muster.AttemptCancelled:
	case muster.AttemptOpen, muster.AttemptRejected, muster.AttemptLost:
		return nil, muster.Errorf(muster.Invalid, "a worker cannot report that a task is %q", end.Outcome)
	default:
		return nil, muster.Errorf(muster.Invalid, "there is no outcome %q", end.Outcome)
	}
	if len(end.Result) > 0 && !json.Valid(end.Result) {
		return nil, muster.Errorf(muster.Invalid, "the result of %s is no JSON", t.run.Attempt.Task)
	}
	return &muster.Report{
		Attempt: t.run.Attempt, Outcome: end.Outcome, Reason: end.Reason, Message: end.Message, ExitCode: end.ExitCode, Result: end.Result, Usage: end.Usage,
		FinishedAt: run.Now(),
	}, nil
}

// sameReport reports whether a report says the same.
func sameReport(r *muster.Report, end *FinalReport) bool {
	code := func(p *int) int {
		if p == nil {
			return -1 << 31
		}
		return *p
	}
	return r.Outcome == end.Outcome && r.Reason == end.Reason && r.Message == end.Message && code(r.ExitCode) == code(end.ExitCode) &&
		bytes.Equal(compactJSON(r.Result), compactJSON(end.Result))
}

// compactJSON is a JSON value without its white space, since a record does not keep that.
func compactJSON(raw json.RawMessage) []byte {
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return raw
	}
	return b.Bytes()
}

// Requeue hands the task back, as when its worker was started again and knows nothing of it: the server gives it to a worker
// anew. It is a Conflict if the task is over.
func (t *Task) Requeue(reason string) error {
	t.mu.Lock()
	err := t.checkOpen()
	t.mu.Unlock()
	if err != nil {
		return err
	}
	t.abort(ErrReturned, muster.Report{Outcome: muster.AttemptLost, Reason: muster.WorkerRestarted, Message: reason})
	return nil
}

// abort makes the task over without a report of its worker, unless it has one. report is what the server is told, if it is told anything.
func (t *Task) abort(cause error, report muster.Report) {
	t.mu.Lock()
	if t.cause != nil || t.report != nil {
		t.mu.Unlock()
		return
	}
	report.Attempt = t.run.Attempt
	report.StartedAt, report.Artifacts = t.startedAt, t.artifacts
	t.report = &report
	orphan := t.startedAt != 0 && cause != ErrReturned //nolint:errorlint // it is one of them
	t.markDone(cause)
	t.mu.Unlock()
	t.release(orphan)
}

// acknowledge makes a finished task over: the server has its report, or does not want it.
func (t *Task) acknowledge(recorded bool) {
	t.mu.Lock()
	if t.cause != nil || t.report == nil {
		t.mu.Unlock()
		return
	}
	if recorded {
		t.markDone(ErrReported)
	} else {
		t.markDone(ErrAbandoned)
	}
	t.mu.Unlock()
	t.release(false)
}

// markDone notes why the task is over. The lock is held.
func (t *Task) markDone(cause error) {
	t.cause = cause
	close(t.done)
}

// release takes the task off its worker. A stray may still be run by it.
func (t *Task) release(orphan bool) {
	w, f := t.worker, t.worker.fleet
	t.mu.Lock()
	cause := causeName(t.cause)
	t.mu.Unlock()
	f.mu.Lock()
	delete(f.tasks, t.id)
	f.finished[t.id] = finishedTask{Worker: w.id, Cause: cause, Task: t.run.Attempt.Task.String()}
	f.mu.Unlock()
	w.mu.Lock()
	delete(w.tasks, t.id)
	if orphan {
		if w.orphans == nil {
			w.orphans = map[string]string{}
		}
		w.orphans[t.id] = fmt.Sprintf("may still run %s (%s): workers of %s cannot be stopped", t.run.Attempt.Task, causeText(cause), f.cfg.System)
		w.constrainOrphans()
	}
	w.mu.Unlock()
	end := diskWrite{task: t}
	if orphan {
		end.worker = w
	}
	f.enqueue(end)
	wake.Set(w.changed)
}

func causeText(cause string) string {
	switch cause {
	case causeName(ErrCancelled):
		return "cancelled"
	case causeName(ErrTimedOut):
		return "timed out"
	default:
		return "given up"
	}
}

// cleanup removes from disk what is left of a task that is over.
func (t *Task) cleanup() {
	f := t.worker.fleet
	f.mu.Lock()
	p, ok := f.finished[t.id]
	f.mu.Unlock()
	if !ok {
		t.mu.Lock()
		p = finishedTask{Worker: t.worker.id, Cause: causeName(t.cause), Task: t.run.Attempt.Task.String()}
		t.mu.Unlock()
	}
	t.saveMu.Lock()
	err := f.store.moveToFinished(t.id, p)
	t.saveMu.Unlock()
	if err == nil {
		f.mu.Lock()
		delete(f.finished, t.id)
		f.mu.Unlock()
	} else {
		f.log.Error("a task that is over cannot be removed from disk", slog.String("task", t.run.Attempt.String()), slog.Any("error", err))
	}
	if err := t.removeDir(); err != nil {
		f.log.Error("the folder of a task cannot be removed", slog.String("task", t.run.Attempt.String()), slog.Any("error", err))
	}
}
