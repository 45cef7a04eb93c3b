package fleet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/dialect"
	"github.com/muster-dev/muster/internal/wake"
)

// executor offers tasks of one kind to a worker and waits for its reports.
type executor struct {
	kind   string
	worker *Worker
}

// executors returns those for kinds and for the kinds of the worker's tasks. The caller holds mu.
func (w *Worker) executors(kinds []string) []run.Executor {
	all := slices.Clone(kinds)
	for _, t := range w.tasks {
		all = append(all, t.run.Spec.Kind)
	}
	slices.Sort(all)
	var list []run.Executor
	for _, kind := range slices.Compact(all) {
		list = append(list, executor{kind, w})
	}
	return list
}

func (x executor) Kind() string { return x.kind }

func (x executor) Run(ctx context.Context, rt *run.Task, reporter run.Reporter) muster.Report {
	t, err := x.worker.acquireTask(rt)
	if err != nil {
		return muster.Report{Outcome: muster.AttemptFailed, Reason: muster.WorkerInternal, Message: err.Error()}
	}
	reporter.Process(run.Pid{PID: os.Getpid()}) // the task outlives the agent: see agent.Detach
	t.attachReporter(reporter)
	defer t.detachReporter()
	return t.waitReport(ctx)
}

// acquireTask returns the task of an attempt: a recovered one, or a new one, which is then on disk.
func (w *Worker) acquireTask(rt *run.Task) (*Task, error) {
	if t := w.findTask(rt.Attempt); t != nil {
		return t, nil
	}
	if rt.Recovered != nil {
		return nil, muster.Errorf(muster.Internal, "the attempt has ended")
	}
	t := newTask(w, dialect.NewUUID(), rt, time.Now())
	if err := t.update(func() error { return nil }, nil); err != nil {
		return nil, err
	}
	f := w.fleet
	f.mu.Lock()
	f.tasks[t.id] = t
	f.mu.Unlock()
	w.mu.Lock()
	w.tasks[t.id] = t
	w.mu.Unlock()
	wake.Set(w.changed)
	return t, nil
}

// findTask returns the task of an attempt, nil if it is done or unknown.
func (w *Worker) findTask(id muster.AttemptID) *Task {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range w.tasks {
		if t.run.Attempt == id {
			return t
		}
	}
	return nil
}

// attachReporter sets the agent's reporter and reports what happened before.
func (t *Task) attachReporter(reporter run.Reporter) {
	t.logMu.Lock()
	defer t.logMu.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.reporter = reporter
	if t.startedAt != 0 {
		reporter.Started(t.startedAt)
	}
	if t.latestProgress.Progress != nil || t.latestProgress.Step != nil || len(t.latestProgress.Metrics) > 0 {
		reporter.Progress(t.latestProgress)
	}
	if t.logWriter != nil && t.logWriter.Size() > 0 {
		reporter.LogGrew(t.logWriter.Size())
	}
}

func (t *Task) detachReporter() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.reporter = nil
}

// waitReport waits for the end of the task. When ctx ends with run.ErrDetach the task continues without an agent.
func (t *Task) waitReport(ctx context.Context) muster.Report {
	limit := t.run.Spec.Timeout.Std()
	var timeout <-chan time.Time
	started := t.started
	for {
		select {
		case <-t.reported:
			return t.finalReport()
		case <-t.ctx.Done():
			return t.finalReport()
		case <-started:
			if started = nil; limit > 0 {
				timeout = time.After(limit - time.Since(t.startedAt.Std())) // which does not change any more
			}
		case <-timeout:
			_ = t.abort(ErrTimedOut, muster.Report{Outcome: muster.AttemptTimedOut, Reason: muster.Timeout, Message: fmt.Sprintf("timed out after %s", muster.Duration(limit))})
			return t.finalReport()
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), run.ErrDetach) {
				return muster.Report{}
			}
			stopped := run.StopCause(ctx)
			_ = t.abort(stopCause(stopped), muster.Report{Outcome: stopped.Outcome, Reason: stopped.Reason, Message: stopped.Message})
			return t.finalReport()
		}
	}
}

func stopCause(stopped *run.Stopped) error {
	switch {
	case stopped.Outcome == muster.AttemptCancelled:
		return ErrCancelled
	case stopped.Outcome == muster.AttemptLost && stopped.Reason == muster.WorkerLost:
		return ErrAbandoned
	default:
		return ErrReturned
	}
}

// finalReport returns the report of a task that has one, with the current size of the log.
func (t *Task) finalReport() muster.Report {
	size := t.currentLogSize()
	t.mu.Lock()
	defer t.mu.Unlock()
	r := *t.report
	r.LogSize = size
	if r.FinishedAt == 0 {
		r.FinishedAt = run.Now()
	}
	return r
}

// supervisor is the agent.Supervisor of a worker, without processes.
type supervisor struct{ worker *Worker }

func (h supervisor) Recovered() []run.Recovered {
	w := h.worker
	w.mu.Lock()
	defer w.mu.Unlock()
	var list []run.Recovered
	for _, t := range w.tasks {
		recovered, err := t.recovered()
		if err != nil {
			continue // impossible: the task was decoded from JSON
		}
		list = append(list, recovered)
	}
	return list
}

func (t *Task) recovered() (run.Recovered, error) {
	state, err := t.run.State()
	if err != nil {
		return run.Recovered{}, err
	}
	size := t.currentLogSize()
	t.mu.Lock()
	defer t.mu.Unlock()
	h := run.Recovered{
		Start: run.StartSpec{Attempt: t.run.Attempt, State: state}, Started: t.startedAt, PID: run.Pid{PID: os.Getpid()}, LogSize: size,
	}
	if t.report != nil {
		r := *t.report
		r.LogSize = size
		h.Report = &r
	}
	return h, nil
}

// SetLastContact implements agent.Supervisor. It does nothing: no task outlives the server, which counts the leases itself.
func (supervisor) SetLastContact(time.Duration) {}

func (supervisor) LastContact() time.Duration { return 0 }

func (supervisor) Freeze(id muster.AttemptID, _ bool) error {
	return muster.Errorf(muster.NotFound, "attempt %s has no process", id)
}

// Forget implements agent.Supervisor. It abandons tasks without a report; the others are done once the report is acknowledged.
func (h supervisor) Forget(ids ...muster.AttemptID) {
	for _, id := range ids {
		if t := h.worker.findTask(id); t != nil {
			_ = t.abort(ErrAbandoned, muster.Report{Outcome: muster.AttemptLost, Reason: muster.WorkerLost})
		}
	}
}

// onReportAck is agent.Config.OnReportAcked. The agent calls it under its lock, so it only queues the acknowledgement.
func (w *Worker) onReportAck(id muster.AttemptID, recorded bool) {
	w.fleet.acks.add(func() {
		if t := w.findTask(id); t != nil {
			t.acknowledge(recorded)
		}
	})
}
