package sched

import (
	"cmp"
	"slices"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sched/effect"
	"github.com/muster-dev/muster/internal/sched/model"
)

// pending collects what the next Flush returns. A subject is listed once, when it
// becomes dirty; Flush reads its row.
type pending struct {
	jobs            []*model.Job
	groups          []*model.Group
	tasks           []*model.Task
	workers         []*model.Worker
	attempts        []muster.Attempt
	late            []muster.LateReport
	removed         []muster.WorkerID
	nextJob         muster.JobID // 0 unless numbers were skipped
	commands        []effect.Command
	events          []muster.Event
	progress        []effect.Progress
	entered         muster.Counts
	attemptsStarted []effect.AttemptStarted
	attemptsEnded   []effect.AttemptEnded
	jobsEnded       []effect.JobEnded
}

// Flush returns everything since the last Flush: each changed row once, in its
// latest form.
func (s *State) Flush() effect.Effects {
	p := &s.out
	fx := effect.Effects{Commands: p.commands, Events: p.events, Progress: p.progress, Entered: p.entered, AttemptsStarted: p.attemptsStarted, AttemptsEnded: p.attemptsEnded, JobsEnded: p.jobsEnded}
	r := &fx.Rows
	r.Attempts, r.LateReports, r.RemovedWorkers, r.NextJob = p.attempts, p.late, p.removed, p.nextJob
	r.Jobs = collectRows(p.jobs, func(j *model.Job) muster.Job {
		row := j.RowWithProgress()
		if !j.SpecDirty {
			row.Spec = nil
		}
		j.Dirty, j.SpecDirty = false, false
		return row
	})
	r.Groups = collectRows(p.groups, func(g *model.Group) muster.Group { g.Dirty = false; return g.Row })
	r.Tasks = collectRows(p.tasks, func(t *model.Task) muster.Task { t.Dirty, t.StoredProgress = false, nil; return t.Row })
	r.Workers = collectRows(p.workers, func(w *model.Worker) muster.Worker {
		w.Dirty = false
		row := w.Row
		row.LastSeenAt = w.Seen
		return row
	})
	// The caller owns the returned lists; those of subjects are reused.
	clear(p.jobs)
	clear(p.groups)
	clear(p.tasks)
	clear(p.workers)
	*p = pending{
		jobs: p.jobs[:0], groups: p.groups[:0], tasks: p.tasks[:0], workers: p.workers[:0],
		commands: make([]effect.Command, 0, len(p.commands)), events: make([]muster.Event, 0, len(p.events)),
		attemptsStarted: make([]effect.AttemptStarted, 0, len(p.attemptsStarted)), attemptsEnded: make([]effect.AttemptEnded, 0, len(p.attemptsEnded)),
	}
	return fx
}

func collectRows[S, R any](subjects []S, row func(S) R) []R {
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

// removeWorker drops the pending row of a worker that is removed.
func (p *pending) removeWorker(w *model.Worker) {
	p.workers = slices.DeleteFunc(p.workers, func(o *model.Worker) bool { return o == w })
	p.removed = append(p.removed, w.Row.ID)
}

// send queues a command for a connected worker. Others are reconciled when they join.
func (s *State) send(w *model.Worker, cmd effect.Command) {
	if w.Connected {
		s.out.commands = append(s.out.commands, cmd)
	}
}

func (s *State) publishTask(now muster.Time, t *model.Task) {
	s.out.events = append(s.out.events, effect.TaskEvent(now, &t.Row))
}

func (s *State) publishJob(now muster.Time, j *model.Job) {
	s.out.events = append(s.out.events, effect.JobEvent(now, &j.Row))
}

func (s *State) publishWorker(now muster.Time, w *model.Worker) {
	s.out.events = append(s.out.events, effect.WorkerEvent(now, &w.Row, cmp.Or(w.Constrained, w.Health.AvoidReason(now))))
}
