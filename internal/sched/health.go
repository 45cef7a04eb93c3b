package sched

import (
	"slices"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/placement"
	"github.com/muster-dev/muster/internal/sched/health"
	"github.com/muster-dev/muster/internal/sched/retry"
)

// recordHealth records the end of an attempt in its worker's health.
func (s *State) recordHealth(now muster.Time, t *task, e *retry.End) {
	w, a := t.worker, t.attempt()
	if w == nil {
		return
	}
	switch faultOf(&t.row, e, t.group.row.Counts[muster.Succeeded] > 0) {
	case workerFault:
		w.health.RecordFailure(now, health.Failure{Attempt: a, Assigned: t.row.AssignedAt, Reason: e.Reason})
	case taskFault:
		w.health.RecordSuccess(now, a)
	case noFault:
		w.health.RecordEnd(a)
	}
	s.onHealthChange(now, w)
}

// onHealthChange updates the queue and the worker's state after its health may have changed.
func (s *State) onHealthChange(now muster.Time, w *worker) {
	suspect, closed := w.health.Suspect(), w.health.AvoidReason(now) != ""
	if suspect != w.Suspect {
		w.Suspect = suspect
		s.queue.LoadChanged(&w.Worker)
	}
	if !suspect && !closed && !w.avoided {
		return
	}
	if s.deriveState(now, w); closed != w.avoided {
		w.avoided = closed
		s.publishWorker(now, w)
	}
	s.armWorker(now, w)
}

// avoidFor returns for how long a task prefers other workers after an attempt ended so on
// its worker: longer each time while other workers could run it. It is short for a gang,
// which may need all workers at once.
func (s *State) avoidFor(t *task, e *retry.End, v retry.Decision) muster.Duration {
	switch {
	case v.State != muster.Queued || faultOf(&t.row, e, true) != workerFault || health.LostWithWorker(e.Reason):
		return 0
	case !t.group.gang() && s.otherWorkerFits(t, []*worker{t.worker}):
		d := minAvoid
		for range t.row.Crashes {
			d = min(2*d, maxAvoid)
		}
		return max(v.Backoff, d)
	case retry.PreferOtherWorker(e.Reason):
		return max(v.Backoff, minAvoid)
	default:
		return 0
	}
}

// crashLimit returns how many attempts of a task may fail by the fleet's fault. A task
// that failed on few workers does not fail for good while another worker could run it,
// unless its worker was lost: then the task itself may crash workers.
func (s *State) crashLimit(t *task, e *retry.End) int {
	if t.worker == nil || faultOf(&t.row, e, true) != workerFault {
		return s.cfg.CrashLimit
	}
	if !slices.Contains(t.failedOn, t.worker) && len(t.failedOn) < minCrashWorkers {
		t.failedOn = append(t.failedOn, t.worker)
	}
	if health.LostWithWorker(e.Reason) || len(t.failedOn) >= minCrashWorkers || !s.otherWorkerFits(t, t.failedOn) {
		return s.cfg.CrashLimit
	}
	return max(s.cfg.CrashLimit, t.row.Crashes+1)
}

// otherWorkerFits reports whether a worker outside except could run the task. An unreachable
// one counts: it may reconnect.
func (s *State) otherWorkerFits(t *task, except []*worker) bool {
	need := s.shapeOf(t.group).Need
	return slices.ContainsFunc(s.workers, func(w *worker) bool {
		open := !w.gone && !w.row.Paused && !w.row.Draining
		return open && !slices.Contains(except, w) && w.Usage.FitsEmpty(need) == placement.Fits
	})
}
