package sched

import (
	"slices"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/place"
	"github.com/muster-dev/muster/internal/sched/health"
	"github.com/muster-dev/muster/internal/sched/judge"
	"github.com/muster-dev/muster/internal/sched/model"
)

// noteHealth enters the end of an attempt into its worker's record: see package health.
func (s *State) noteHealth(now muster.Time, t *model.Task, e *judge.Ending) {
	w, a := t.Worker, t.Attempt()
	if w == nil {
		return
	}
	switch judge.Blame(&t.Row, e, t.Group.Row.Counts[muster.Succeeded] > 0) {
	case judge.Worker:
		w.Health.Failed(now, health.Failure{Attempt: a, Assigned: t.Row.AssignedAt, Reason: e.Reason})
	case judge.Task:
		w.Health.Succeeded(now, a)
	case judge.Nobody:
		w.Health.Ended(a)
	}
	s.judged(now, w)
}

// judged draws the conclusions after a worker's record may have changed.
func (s *State) judged(now muster.Time, w *model.Worker) {
	suspect, closed := w.Health.Suspect(), w.Health.Closed(now) != ""
	if suspect != w.Suspect {
		w.Suspect = suspect
		s.queue.Changed(&w.Worker)
	}
	if !suspect && !closed && !w.Avoided {
		return
	}
	if s.review(now, w); closed != w.Avoided {
		w.Avoided = closed
		s.publishWorker(now, w)
	}
	s.armWorker(now, w)
}

// shuns returns for how long a task prefers other workers after an attempt ended so on
// its worker: longer each time while there are others that could run it. A gang may need
// all of them at once.
func (s *State) shuns(t *model.Task, e *judge.Ending, v judge.Verdict) muster.Duration {
	switch {
	case v.To != muster.Queued || judge.Blame(&t.Row, e, true) != judge.Worker || lost(e.Reason):
		return 0
	case !t.Group.Gang() && s.another(t, []*model.Worker{t.Worker}):
		d := shunnedFor
		for range t.Row.Crashes {
			d = min(2*d, longestShun)
		}
		return max(v.Pause, d)
	case judge.Elsewhere(e.Reason):
		return max(v.Pause, shunnedFor)
	default:
		return 0
	}
}

// crashLimit returns how many attempts of a task may fail by the fleet's fault. A task
// that failed on few workers is not given up while there is another that could run it,
// unless its worker was lost: then it may be the task that takes workers down.
func (s *State) crashLimit(t *model.Task, e *judge.Ending) int {
	if t.Worker == nil || judge.Blame(&t.Row, e, true) != judge.Worker {
		return s.cfg.CrashLimit
	}
	if !slices.Contains(t.FailedOn, t.Worker) && len(t.FailedOn) < crashWorkers {
		t.FailedOn = append(t.FailedOn, t.Worker)
	}
	if lost(e.Reason) || len(t.FailedOn) >= crashWorkers || !s.another(t, t.FailedOn) {
		return s.cfg.CrashLimit
	}
	return max(s.cfg.CrashLimit, t.Row.Crashes+1)
}

// another reports whether a worker that is none of those could run the task. One that is
// unreachable may come back.
func (s *State) another(t *model.Task, but []*model.Worker) bool {
	need := s.shapeOf(t.Group).Need
	return slices.ContainsFunc(s.order, func(w *model.Worker) bool {
		open := !w.Gone && !w.Row.Paused && !w.Row.Draining
		return open && !slices.Contains(but, w) && w.Book.Ever(need) == place.Fits
	})
}

// lost reports whether an attempt was lost together with its worker.
func lost(r muster.Reason) bool { return r == muster.WorkerLost || r == muster.WorkerRestarted }
