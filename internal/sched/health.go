package sched

import (
	"slices"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/placement"
	"github.com/muster-dev/muster/internal/sched/health"
	"github.com/muster-dev/muster/internal/sched/judge"
	"github.com/muster-dev/muster/internal/sched/model"
)

// recordHealth records the end of an attempt in its worker's health.
func (s *State) recordHealth(now muster.Time, t *model.Task, e *judge.AttemptEnd) {
	w, a := t.Worker, t.Attempt()
	if w == nil {
		return
	}
	switch judge.FaultOf(&t.Row, e, t.Group.Row.Counts[muster.Succeeded] > 0) {
	case judge.WorkerFault:
		w.Health.RecordFailure(now, health.Failure{Attempt: a, Assigned: t.Row.AssignedAt, Reason: e.Reason})
	case judge.TaskFault:
		w.Health.RecordSuccess(now, a)
	case judge.NoFault:
		w.Health.RecordEnd(a)
	}
	s.onHealthChange(now, w)
}

// onHealthChange updates the queue and the worker's state after its health may have changed.
func (s *State) onHealthChange(now muster.Time, w *model.Worker) {
	suspect, closed := w.Health.Suspect(), w.Health.AvoidReason(now) != ""
	if suspect != w.Suspect {
		w.Suspect = suspect
		s.queue.LoadChanged(&w.Worker)
	}
	if !suspect && !closed && !w.Avoided {
		return
	}
	if s.deriveState(now, w); closed != w.Avoided {
		w.Avoided = closed
		s.publishWorker(now, w)
	}
	s.armWorker(now, w)
}

// avoidFor returns for how long a task prefers other workers after an attempt ended so on
// its worker: longer each time while other workers could run it. It is short for a gang,
// which may need all workers at once.
func (s *State) avoidFor(t *model.Task, e *judge.AttemptEnd, v judge.Decision) muster.Duration {
	switch {
	case v.State != muster.Queued || judge.FaultOf(&t.Row, e, true) != judge.WorkerFault || lostWithWorker(e.Reason):
		return 0
	case !t.Group.Gang() && s.otherWorkerFits(t, []*model.Worker{t.Worker}):
		d := minAvoid
		for range t.Row.Crashes {
			d = min(2*d, maxAvoid)
		}
		return max(v.Backoff, d)
	case judge.PreferOtherWorker(e.Reason):
		return max(v.Backoff, minAvoid)
	default:
		return 0
	}
}

// crashLimit returns how many attempts of a task may fail by the fleet's fault. A task
// that failed on few workers does not fail for good while another worker could run it,
// unless its worker was lost: then the task itself may crash workers.
func (s *State) crashLimit(t *model.Task, e *judge.AttemptEnd) int {
	if t.Worker == nil || judge.FaultOf(&t.Row, e, true) != judge.WorkerFault {
		return s.cfg.CrashLimit
	}
	if !slices.Contains(t.FailedOn, t.Worker) && len(t.FailedOn) < minCrashWorkers {
		t.FailedOn = append(t.FailedOn, t.Worker)
	}
	if lostWithWorker(e.Reason) || len(t.FailedOn) >= minCrashWorkers || !s.otherWorkerFits(t, t.FailedOn) {
		return s.cfg.CrashLimit
	}
	return max(s.cfg.CrashLimit, t.Row.Crashes+1)
}

// otherWorkerFits reports whether a worker outside except could run the task. An unreachable
// one counts: it may reconnect.
func (s *State) otherWorkerFits(t *model.Task, except []*model.Worker) bool {
	need := s.shapeOf(t.Group).Need
	return slices.ContainsFunc(s.workers, func(w *model.Worker) bool {
		open := !w.Gone && !w.Row.Paused && !w.Row.Draining
		return open && !slices.Contains(except, w) && w.Usage.FitsEmpty(need) == placement.Fits
	})
}

// lostWithWorker reports whether an attempt was lost together with its worker.
func lostWithWorker(r muster.Reason) bool {
	return r == muster.WorkerLost || r == muster.WorkerRestarted
}
