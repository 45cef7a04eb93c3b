package fleet

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/link"
)

// Task is one attempt that a worker holds. Its methods may be called at the same time.
type Task struct {
	worker  *Worker
	id      string
	run     *run.Task
	offered time.Time

	saving   sync.Mutex // held while its record is written
	logging  sync.Mutex // held while its log is written
	log      taskLog    // guarded by logging
	points   *run.PointLogger
	laying   sync.Mutex // held while its folder is laid out or removed
	folder   string     // guarded by laying; "" while there is none
	started  chan struct{}
	reported chan struct{} // closed once the report is on disk
	over     chan struct{}

	mu        sync.Mutex
	sink      run.Reporter // nil while no agent executes it
	began     muster.Time
	latest    muster.Progress // for the next sink
	artifacts []muster.Artifact
	cut       bool           // the log has no more room
	report    *muster.Report // once it was finished, or is over
	why       error
}

// Ending is how a task ended on its worker.
type Ending struct {
	Outcome  muster.Outcome // AttemptSucceeded, AttemptFailed, AttemptTimedOut or AttemptCancelled
	Reason   muster.Reason  // of a failure
	Message  string
	ExitCode *int
	Result   json.RawMessage // one JSON value; nil for none
	Usage    *muster.Usage
}

func newTask(w *Worker, id string, rt *run.Task, offered time.Time) *Task {
	t := &Task{
		worker: w, id: id, run: rt, offered: offered,
		started: make(chan struct{}), reported: make(chan struct{}), over: make(chan struct{}),
	}
	t.points = run.NewPointLogger(t.logPoint)
	return t
}

// newID returns a random UUID of version 4.
func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// restoreTask makes a task of its record.
func restoreTask(w *Worker, id string, r *taskRecord) (*Task, error) {
	rt := new(run.Task)
	if err := json.Unmarshal(r.Attempt, rt); err != nil {
		return nil, err
	}
	if rt.Spec == nil {
		return nil, errNone
	}
	if now := run.BootClock(); rt.Assigned > now { // of an earlier life of the machine
		rt.Assigned = now
	}
	t := newTask(w, id, rt, r.Offered.Std())
	t.artifacts, t.cut = r.Artifacts, r.Cut
	if r.Began != 0 {
		t.began = r.Began
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

// Offered is when the worker's fleet received it.
func (t *Task) Offered() time.Time { return t.offered }

// Began reports whether the worker is known to run it.
func (t *Task) Began() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.began != 0
}

// stage reports whether the task began, and whether it is neither over nor finished.
func (t *Task) stage() (began, open bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.began != 0, t.why == nil && t.report == nil
}

// Over is closed once the task is over: reported, cancelled, timed out, given up or handed back.
func (t *Task) Over() <-chan struct{} { return t.over }

// Why returns nil until the task is over, and then a Conflict that says why, with one of the Err… in its chain.
func (t *Task) Why() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.why == nil {
		return nil
	}
	return overError(t.run.Attempt.Task.String(), t.why)
}

// closed returns a Conflict if nothing of the task is taken any more. The lock is held.
func (t *Task) closed() error {
	switch {
	case t.why != nil:
		return overError(t.run.Attempt.Task.String(), t.why)
	case t.report != nil:
		return overError(t.run.Attempt.Task.String(), ErrReported)
	default:
		return nil
	}
}

// save changes the task and writes its record before anything else happens to it. With an error of change, or of the
// disk, nothing has changed: undo is called for the latter.
func (t *Task) save(change func() error, undo func()) error {
	t.saving.Lock()
	defer t.saving.Unlock()
	t.mu.Lock()
	if err := change(); err != nil {
		t.mu.Unlock()
		return err
	}
	r := &taskRecord{Worker: t.worker.id, Offered: muster.NewTime(t.offered), Began: t.began, Artifacts: t.artifacts, Cut: t.cut, Report: t.report}
	t.mu.Unlock()
	var err error
	if r.Attempt, err = t.run.State(); err == nil {
		err = t.worker.fleet.state.putTask(t.id, r)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil {
		undo()
	}
	if t.why != nil { // meanwhile; its record may have been removed before it was written here
		t.worker.fleet.later(chore{task: t})
	}
	return err
}

// Begin takes the first sign that the worker runs it. Later calls do nothing. It is a Conflict if the task is over. As all that a worker says
// of a task it is a Touch.
func (t *Task) Begin() error {
	t.worker.Touch(nil)
	t.mu.Lock()
	began, err := t.began != 0, t.closed()
	t.mu.Unlock()
	if began || err != nil {
		return err
	}
	first := false
	err = t.save(func() error {
		if err := t.closed(); err != nil {
			return err
		}
		if first = t.began == 0; first {
			t.began = run.Now()
		}
		return nil
	}, func() {
		if first {
			t.began = 0
		}
	})
	if err != nil || !first {
		return err
	}
	t.mu.Lock()
	close(t.started)
	if t.sink != nil {
		t.sink.Started(t.began)
	}
	t.mu.Unlock()
	token(t.worker.changed)
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
	if err := t.Begin(); err != nil {
		return err
	}
	if err := t.pass(p); err != nil {
		return err
	}
	t.points.Add(&p) // without the lock: it may write the log
	return nil
}

// pass tells the agent of a progress.
func (t *Task) pass(p muster.Progress) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.closed(); err != nil {
		return err
	}
	t.remember(p)
	if t.sink != nil {
		t.sink.Progress(p)
	}
	return nil
}

// maxMetrics is how many names of metrics are remembered for the next agent.
const maxMetrics = 100

// remember merges a progress into what the next agent is told. The lock is held.
func (t *Task) remember(p muster.Progress) {
	if p.Progress != nil {
		t.latest.Progress = p.Progress
	}
	if p.Step != nil {
		t.latest.Step = p.Step
	}
	if len(p.Metrics) > 0 {
		t.latest.Metrics = maps.Clone(t.latest.Metrics) // an agent may have the old one
		for name, v := range p.Metrics {
			if t.latest.Metrics == nil {
				t.latest.Metrics = map[string]float64{}
			}
			if _, known := t.latest.Metrics[name]; known || len(t.latest.Metrics) < maxMetrics {
				t.latest.Metrics[name] = v
			}
		}
	}
}

// Finish ends the task. It returns nil only when the server has the report on disk; with another error than Conflict or
// Invalid the report may be kept, and is sent until the server has it: to repeat the same call is right. It is a Conflict
// if the task is over, or has another report.
func (t *Task) Finish(ctx context.Context, end Ending) error {
	t.worker.Touch(nil)
	report, err := t.reportOf(&end)
	if err != nil {
		return err
	}
	t.points.Flush() // while the log still takes it
	again := false
	err = t.save(func() error {
		if t.report != nil && t.why == nil && sameEnding(t.report, &end) {
			again = true
			return errNone // nothing to write
		}
		if err := t.closed(); err != nil {
			return err
		}
		if report.StartedAt = t.began; t.began == 0 {
			report.StartedAt = report.FinishedAt
		}
		report.Artifacts = t.artifacts
		if err := link.CheckReport(report); err != nil {
			return muster.Errorf(muster.Invalid, "the report of %s is not taken: %w", t.run.Attempt.Task, err)
		}
		t.report = report
		return nil
	}, func() { t.report = nil })
	if err != nil && !again {
		return err
	}
	if !again {
		t.logging.Lock() // what is under way comes before the end
		close(t.reported)
		t.logging.Unlock()
		token(t.worker.changed)
	}
	select {
	case <-t.over:
	case <-ctx.Done():
		return muster.Errorf(muster.Unavailable, "the server has not confirmed the report of %s yet; it is kept", t.run.Attempt.Task)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.why != ErrReported { //nolint:errorlint // it is one of them
		return overError(t.run.Attempt.Task.String(), t.why)
	}
	return nil
}

// reportOf makes a report of how a task ended.
func (t *Task) reportOf(end *Ending) (*muster.Report, error) {
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

// sameEnding reports whether a report says the same.
func sameEnding(r *muster.Report, end *Ending) bool {
	code := func(p *int) int {
		if p == nil {
			return -1 << 31
		}
		return *p
	}
	return r.Outcome == end.Outcome && r.Reason == end.Reason && r.Message == end.Message && code(r.ExitCode) == code(end.ExitCode) &&
		bytes.Equal(compacted(r.Result), compacted(end.Result))
}

// compacted is a JSON value without its white space, since a record does not keep that.
func compacted(raw json.RawMessage) []byte {
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return raw
	}
	return b.Bytes()
}

// Return hands the task back, as when its worker was started again and knows nothing of it: the server gives it to a worker
// anew. It is a Conflict if the task is over.
func (t *Task) Return(why string) error {
	t.mu.Lock()
	err := t.closed()
	t.mu.Unlock()
	if err != nil {
		return err
	}
	t.end(ErrReturned, muster.Report{Outcome: muster.AttemptLost, Reason: muster.WorkerRestarted, Message: why})
	return nil
}

// end makes the task over without a report of its worker, unless it has one. report is what the server is told, if it is told anything.
func (t *Task) end(cause error, report muster.Report) {
	f := t.worker.fleet
	t.mu.Lock()
	if t.why != nil || t.report != nil {
		t.mu.Unlock()
		return
	}
	report.Attempt = t.run.Attempt
	report.StartedAt, report.Artifacts = t.began, t.artifacts
	t.report = &report
	stray := t.began != 0 && !f.cfg.Tells && cause != ErrReturned //nolint:errorlint // it is one of them
	t.conclude(cause)
	t.mu.Unlock()
	t.leave(stray)
}

// settle makes a finished task over: the server has its report, or does not want it.
func (t *Task) settle(recorded bool) {
	t.mu.Lock()
	if t.why != nil || t.report == nil {
		t.mu.Unlock()
		return
	}
	if recorded {
		t.conclude(ErrReported)
	} else {
		t.conclude(ErrGivenUp)
	}
	t.mu.Unlock()
	t.leave(false)
}

// conclude notes why the task is over. The lock is held.
func (t *Task) conclude(cause error) {
	t.why = cause
	close(t.over)
}

// leave takes the task off its worker. A stray may still be run by it.
func (t *Task) leave(stray bool) {
	w, f := t.worker, t.worker.fleet
	t.mu.Lock()
	cause := nameOf(t.why)
	t.mu.Unlock()
	f.mu.Lock()
	delete(f.tasks, t.id)
	f.ended[t.id] = past{Worker: w.id, Cause: cause, Task: t.run.Attempt.Task.String()}
	f.mu.Unlock()
	w.mu.Lock()
	delete(w.tasks, t.id)
	if stray {
		if w.strays == nil {
			w.strays = map[string]string{}
		}
		w.strays[t.id] = fmt.Sprintf("may still run %s (%s): workers of %s cannot be stopped", t.run.Attempt.Task, phrase(cause), f.cfg.System)
		w.constrainStrays()
	}
	w.mu.Unlock()
	end := chore{task: t}
	if stray {
		end.worker = w
	}
	f.later(end)
	token(w.changed)
}

func phrase(cause string) string {
	switch cause {
	case nameOf(ErrCancelled):
		return "cancelled"
	case nameOf(ErrTimedOut):
		return "timed out"
	default:
		return "given up"
	}
}

// forget removes from disk what is left of a task that is over.
func (t *Task) forget() {
	f := t.worker.fleet
	f.mu.Lock()
	p, ok := f.ended[t.id]
	f.mu.Unlock()
	if !ok {
		t.mu.Lock()
		p = past{Worker: t.worker.id, Cause: nameOf(t.why), Task: t.run.Attempt.Task.String()}
		t.mu.Unlock()
	}
	t.saving.Lock()
	err := f.state.end(t.id, p)
	t.saving.Unlock()
	if err == nil {
		f.mu.Lock()
		delete(f.ended, t.id)
		f.mu.Unlock()
	} else {
		f.log.Error("a task that is over cannot be removed from disk", slog.String("task", t.run.Attempt.String()), slog.Any("error", err))
	}
	if err := t.clear(); err != nil {
		f.log.Error("the folder of a task cannot be removed", slog.String("task", t.run.Attempt.String()), slog.Any("error", err))
	}
}
