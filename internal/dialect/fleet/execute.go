package fleet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent"
	"github.com/muster-dev/muster/internal/agent/run"
)

// executor offers tasks of one kind to a worker, and waits for its reports.
type executor struct {
	kind   string
	worker *Worker
}

var _ run.Executor = executor{}

// executors returns those for kinds, and for the kinds of what is held. The worker's lock is held.
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

// Kind implements run.Executor.
func (x executor) Kind() string { return x.kind }

// Run implements run.Executor.
func (x executor) Run(ctx context.Context, rt *run.Task, sink run.Reporter) muster.Report {
	t, err := x.worker.hold(rt)
	if err != nil {
		return muster.Report{Outcome: muster.AttemptFailed, Reason: muster.WorkerInternal, Message: err.Error()}
	}
	sink.Process(run.Pid{PID: os.Getpid()}) // it outlives the agent: see agent.Leave
	t.attach(sink)
	defer t.detach()
	return t.wait(ctx)
}

// hold returns the task of an attempt: a new one, which is on disk then, or one that was taken up from there.
func (w *Worker) hold(rt *run.Task) (*Task, error) {
	if t := w.attempt(rt.Attempt); t != nil {
		return t, nil
	}
	if rt.Recovered != nil {
		return nil, muster.Errorf(muster.Internal, "the attempt ended in the meantime")
	}
	t := newTask(w, newID(), rt, time.Now())
	if err := t.save(func() error { return nil }, func() {}); err != nil {
		return nil, err
	}
	f := w.fleet
	f.mu.Lock()
	f.tasks[t.id] = t
	f.mu.Unlock()
	w.mu.Lock()
	w.tasks[t.id] = t
	w.mu.Unlock()
	token(w.changed)
	return t, nil
}

// attempt returns the task of an attempt that is not over, nil if there is none.
func (w *Worker) attempt(id muster.AttemptID) *Task {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range w.tasks {
		if t.run.Attempt == id {
			return t
		}
	}
	return nil
}

// attach has an agent hear of the task, and tells it what happened so far.
func (t *Task) attach(sink run.Reporter) {
	t.logging.Lock()
	defer t.logging.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sink = sink
	if t.began != 0 {
		sink.Started(t.began)
	}
	if t.latest.Progress != nil || t.latest.Step != nil || len(t.latest.Metrics) > 0 {
		sink.Progress(t.latest)
	}
	if t.log.size > 0 {
		sink.LogGrew(t.log.size)
	}
}

func (t *Task) detach() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sink = nil
}

// wait returns how the task ended. When ctx ends with run.ErrDetach it goes on without an agent.
func (t *Task) wait(ctx context.Context) muster.Report {
	limit := t.run.Spec.Timeout.Std()
	expire := time.NewTimer(time.Hour)
	expire.Stop()
	defer expire.Stop()
	started := t.started
	for {
		select {
		case <-t.reported:
			return t.said()
		case <-t.over:
			return t.said()
		case <-started:
			if started = nil; limit > 0 {
				expire.Reset(limit - time.Since(t.beganAt()))
			}
		case <-expire.C:
			t.end(ErrTimedOut, muster.Report{Outcome: muster.AttemptTimedOut, Reason: muster.Timeout, Message: fmt.Sprintf("it ran for longer than %s", muster.Duration(limit))})
			return t.said()
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), run.ErrDetach) {
				return muster.Report{}
			}
			why := run.StopCause(ctx)
			t.end(causeOf(why), muster.Report{Outcome: why.Outcome, Reason: why.Reason, Message: why.Message})
			return t.said()
		}
	}
}

func causeOf(why *run.Stopped) error {
	switch {
	case why.Outcome == muster.AttemptCancelled:
		return ErrCancelled
	case why.Outcome == muster.AttemptLost && why.Reason == muster.WorkerLost:
		return ErrGivenUp
	default:
		return ErrReturned
	}
}

func (t *Task) beganAt() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.began.Std()
}

// said returns the report of a task that has one. The log's size is that of now.
func (t *Task) said() muster.Report {
	t.logging.Lock()
	size := t.log.size
	t.logging.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	r := *t.report
	r.LogSize = size
	if r.FinishedAt == 0 {
		r.FinishedAt = run.Now()
	}
	return r
}

// holder is what a worker's agent asks of its supervisor.
type holder struct{ worker *Worker }

var _ agent.Supervisor = holder{}

// Recovered implements agent.Supervisor.
func (h holder) Recovered() []run.Recovered {
	w := h.worker
	w.mu.Lock()
	defer w.mu.Unlock()
	var list []run.Recovered
	for _, t := range w.tasks {
		held, err := t.held()
		if err != nil {
			continue // of what was read as JSON: it can be written
		}
		list = append(list, held)
	}
	return list
}

func (t *Task) held() (run.Recovered, error) {
	state, err := t.run.State()
	if err != nil {
		return run.Recovered{}, err
	}
	t.logging.Lock()
	size := t.log.size
	t.logging.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	h := run.Recovered{
		Start: run.StartSpec{Attempt: t.run.Attempt, State: state}, Started: t.began, PID: run.Pid{PID: os.Getpid()}, LogSize: size,
	}
	if t.report != nil {
		r := *t.report
		r.LogSize = size
		h.Report = &r
	}
	return h, nil
}

// SetLastContact implements agent.Supervisor. Nothing outlives the server here, which counts the leases itself.
func (holder) SetLastContact(time.Duration) {}

// LastContact implements agent.Supervisor.
func (holder) LastContact() time.Duration { return 0 }

// Freeze implements agent.Supervisor.
func (holder) Freeze(id muster.AttemptID, _ bool) error {
	return muster.Errorf(muster.NotFound, "attempt %s has no process on this machine", id)
}

// Forget implements agent.Supervisor. A finished task is over once it is settled; one that is not finished is given up.
func (h holder) Forget(ids ...muster.AttemptID) {
	for _, id := range ids {
		if t := h.worker.attempt(id); t != nil {
			t.end(ErrGivenUp, muster.Report{Outcome: muster.AttemptLost, Reason: muster.WorkerLost})
		}
	}
}

// settlement is what an agent says of a report.
type settlement struct {
	worker   *Worker
	attempt  muster.AttemptID
	recorded bool
}

// settled is agent.Config.Settled. It is called under the agent's lock, so it only passes that on.
func (w *Worker) settled(id muster.AttemptID, recorded bool) {
	f := w.fleet
	f.mu.Lock()
	f.settlements = append(f.settlements, settlement{w, id, recorded})
	f.mu.Unlock()
	token(f.settling)
}

// settle makes over what was settled, until ctx ends and nothing is left.
func (f *Fleet) settle(ctx context.Context) {
	for done := false; !done; {
		select {
		case <-f.settling:
		case <-ctx.Done():
			done = true
		}
		f.mu.Lock()
		list := f.settlements
		f.settlements = nil
		f.mu.Unlock()
		for _, s := range list {
			if t := s.worker.attempt(s.attempt); t != nil {
				t.settle(s.recorded)
			}
		}
	}
}
