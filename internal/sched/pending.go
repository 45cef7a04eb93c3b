package sched

import (
	"slices"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sched/effect"
)

// pending is what has to leave by the next Take. A subject is listed once, when
// it first became dirty; its row is read when it is taken.
type pending struct {
	jobs     []*job
	groups   []*group
	tasks    []*task
	workers  []*worker
	attempts []muster.Attempt
	late     []muster.Report
	gone     []muster.WorkerID
	sends    []effect.Send
	events   []muster.Event
}

// Take returns everything since the last Take: each changed row once, in its
// latest form.
func (s *State) Take() effect.Effects {
	p := &s.out
	fx := effect.Effects{Sends: p.sends, Events: p.events}
	r := &fx.Rows
	r.Attempts, r.Late, r.Gone = p.attempts, p.late, p.gone
	r.Jobs = take(p.jobs, func(j *job) muster.Job {
		row := j.shown()
		if !j.fresh {
			row.Spec = nil
		}
		j.dirty, j.fresh = false, false
		return row
	})
	r.Groups = take(p.groups, func(g *group) muster.Group { g.dirty = false; return g.row })
	r.Tasks = take(p.tasks, func(t *task) muster.Task { t.dirty = false; return t.row })
	r.Workers = take(p.workers, func(w *worker) muster.Worker {
		w.dirty = false
		row := w.row
		row.LastSeenAt = w.seen
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

// shown returns the job's row with what is derived.
func (j *job) shown() muster.Job {
	row := j.row
	if total := row.Counts.Total(); total > 0 {
		share := float64(row.Counts.Finished()) / float64(total)
		row.Progress = &share
	}
	return row
}

func (s *State) changedJob(j *job) {
	if !j.dirty {
		j.dirty = true
		s.out.jobs = append(s.out.jobs, j)
	}
}

func (s *State) changedGroup(g *group) {
	if !g.dirty {
		g.dirty = true
		s.out.groups = append(s.out.groups, g)
	}
}

func (s *State) changedTask(t *task) {
	if !t.dirty {
		t.dirty = true
		s.out.tasks = append(s.out.tasks, t)
	}
}

func (s *State) changedWorker(w *worker) {
	if !w.dirty {
		w.dirty = true
		s.out.workers = append(s.out.workers, w)
	}
}

// forget takes back what is pending of a worker that is removed.
func (p *pending) forget(w *worker) {
	p.workers = slices.DeleteFunc(p.workers, func(o *worker) bool { return o == w })
	p.gone = append(p.gone, w.row.ID)
}

// tell sends a word to a worker that is connected. Others learn what they missed
// when they join.
func (s *State) tell(w *worker, word effect.Send) {
	if w.connected {
		s.out.sends = append(s.out.sends, word)
	}
}

func (s *State) publishTask(now muster.Time, t *task) {
	s.out.events = append(s.out.events, effect.TaskEvent(now, &t.row))
}

func (s *State) publishJob(now muster.Time, j *job) {
	s.out.events = append(s.out.events, effect.JobEvent(now, &j.row))
}

func (s *State) publishWorker(now muster.Time, w *worker) {
	s.out.events = append(s.out.events, effect.WorkerEvent(now, &w.row, w.constrained))
}
