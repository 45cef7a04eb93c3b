package sched

import (
	"cmp"
	"slices"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sched/effect"
	"github.com/muster-dev/muster/internal/sched/model"
)

// pending is what has to leave by the next Take. A subject is listed once, when
// it first became dirty; its row is read when it is taken.
type pending struct {
	jobs     []*model.Job
	groups   []*model.Group
	tasks    []*model.Task
	workers  []*model.Worker
	attempts []muster.Attempt
	late     []muster.LateReport
	gone     []muster.WorkerID
	next     muster.JobID // 0 unless numbers were skipped
	sends    []effect.Send
	events   []muster.Event
	progress []effect.Progress
	entered  muster.Counts
	started  []effect.Started
	ended    []effect.Ended
	done     []effect.Done
}

// Take returns everything since the last Take: each changed row once, in its
// latest form.
func (s *State) Take() effect.Effects {
	p := &s.out
	fx := effect.Effects{Sends: p.sends, Events: p.events, Progress: p.progress, Entered: p.entered, Started: p.started, Ended: p.ended, Done: p.done}
	r := &fx.Rows
	r.Attempts, r.LateReports, r.RemovedWorkers, r.NextJob = p.attempts, p.late, p.gone, p.next
	r.Jobs = take(p.jobs, func(j *model.Job) muster.Job {
		row := j.Shown()
		if !j.Fresh {
			row.Spec = nil
		}
		j.Dirty, j.Fresh = false, false
		return row
	})
	r.Groups = take(p.groups, func(g *model.Group) muster.Group { g.Dirty = false; return g.Row })
	r.Tasks = take(p.tasks, func(t *model.Task) muster.Task { t.Dirty, t.Saved = false, nil; return t.Row })
	r.Workers = take(p.workers, func(w *model.Worker) muster.Worker {
		w.Dirty = false
		row := w.Row
		row.LastSeenAt = w.Seen
		return row
	})
	// The lists are given away, except those of subjects, which are used again.
	clear(p.jobs)
	clear(p.groups)
	clear(p.tasks)
	clear(p.workers)
	*p = pending{
		jobs: p.jobs[:0], groups: p.groups[:0], tasks: p.tasks[:0], workers: p.workers[:0],
		sends: make([]effect.Send, 0, len(p.sends)), events: make([]muster.Event, 0, len(p.events)),
		started: make([]effect.Started, 0, len(p.started)), ended: make([]effect.Ended, 0, len(p.ended)),
	}
	return fx
}

func take[S, R any](subjects []S, row func(S) R) []R {
	if len(subjects) == 0 {
		return nil
	}
	rows := make([]R, len(subjects))
	for i, x := range subjects {
		rows[i] = row(x)
	}
	return rows
}

func (s *State) changedJob(j *model.Job) {
	if !j.Dirty {
		j.Dirty = true
		s.out.jobs = append(s.out.jobs, j)
	}
}

func (s *State) changedGroup(g *model.Group) {
	if !g.Dirty {
		g.Dirty = true
		s.out.groups = append(s.out.groups, g)
	}
}

func (s *State) changedTask(t *model.Task) {
	if !t.Dirty {
		t.Dirty = true
		s.out.tasks = append(s.out.tasks, t)
	}
}

func (s *State) changedWorker(w *model.Worker) {
	if !w.Dirty {
		w.Dirty = true
		s.out.workers = append(s.out.workers, w)
	}
}

// forget takes back what is pending of a worker that is removed.
func (p *pending) forget(w *model.Worker) {
	p.workers = slices.DeleteFunc(p.workers, func(o *model.Worker) bool { return o == w })
	p.gone = append(p.gone, w.Row.ID)
}

// tell sends a word to a worker that is connected. Others learn what they missed
// when they join.
func (s *State) tell(w *model.Worker, word effect.Send) {
	if w.Connected {
		s.out.sends = append(s.out.sends, word)
	}
}

func (s *State) publishTask(now muster.Time, t *model.Task) {
	s.out.events = append(s.out.events, effect.TaskEvent(now, &t.Row))
}

func (s *State) publishJob(now muster.Time, j *model.Job) {
	s.out.events = append(s.out.events, effect.JobEvent(now, &j.Row))
}

func (s *State) publishWorker(now muster.Time, w *model.Worker) {
	s.out.events = append(s.out.events, effect.WorkerEvent(now, &w.Row, cmp.Or(w.Constrained, w.Health.Closed(now))))
}
