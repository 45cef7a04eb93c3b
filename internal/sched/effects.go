package sched

import (
	"cmp"
	"slices"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sched/report"
)

// saveProgressEvery is how long progress may be in memory only. A row that is written for another reason
// includes it.
const saveProgressEvery = muster.Duration(10 * time.Second)

// progress records what a running attempt reports. It is published at once and written later, except
// for artifacts, which must not be lost.
func (s *State) progress(now muster.Time, ev Progressed) error {
	p := &ev.Progress
	t, err := s.current(ev.Worker, p.Attempt)
	if err != nil {
		return err
	}
	s.touch(now, t.worker)
	if len(p.Artifacts) > 0 {
		t.row.Artifacts = p.Artifacts
		s.changedTask(t)
	} else {
		s.deferProgress(now, t)
	}
	if p.Progress != nil {
		t.row.Progress = p.Progress
	}
	if p.Step != nil {
		t.row.Step = *p.Step
	}
	if len(p.Metrics) > 0 {
		t.row.Metrics = report.MergeMetrics(t.row.Metrics, p.Metrics)
	}
	if !t.dirty {
		s.out.progress = append(s.out.progress, Progress{
			Task: t.row.ID, Attempt: t.row.Attempt, Progress: t.row.Progress, Step: t.row.Step, Metrics: t.row.Metrics,
		})
	}
	s.publishTask(now, t)
	return nil
}

// deferProgress schedules a write of t's row within saveProgressEvery.
func (s *State) deferProgress(now muster.Time, t *task) {
	if t.dirty || t.storedProgress != nil {
		return
	}
	t.storedProgress = &progressSnapshot{progress: t.row.Progress, step: t.row.Step, metrics: t.row.Metrics}
	s.dirtyProgress = append(s.dirtyProgress, t)
	if s.progressFlushAt == 0 {
		s.progressFlushAt = now.Add(saveProgressEvery)
	}
}

// saveProgress marks all rows dirty whose progress is in memory only.
func (s *State) saveProgress() {
	for _, t := range s.dirtyProgress {
		if t.storedProgress != nil {
			s.changedTask(t)
		}
	}
	clear(s.dirtyProgress)
	s.dirtyProgress, s.progressFlushAt = s.dirtyProgress[:0], 0
}

// pending collects what the next Flush returns. A subject is listed once, when it
// becomes dirty; Flush reads its row.
type pending struct {
	jobs            []*job
	groups          []*group
	tasks           []*task
	workers         []*worker
	totals          []*projectStats
	cacheEntries    []muster.CacheEntry
	cacheHits       []muster.CacheHit
	attempts        []muster.Attempt
	late            []muster.LateReport
	removed         []muster.WorkerID
	nextJob         muster.JobID // 0 unless numbers were skipped
	commands        []Command
	events          []muster.Event
	progress        []Progress
	entered         muster.Counts
	attemptsStarted []AttemptStarted
	attemptsEnded   []AttemptEnded
	jobsEnded       []JobEnded
}

// Flush returns everything since the last Flush: each changed row once, in its
// latest form.
func (s *State) Flush() Effects {
	p := &s.out
	fx := Effects{Commands: p.commands, Events: p.events, Progress: p.progress, Entered: p.entered, AttemptsStarted: p.attemptsStarted, AttemptsEnded: p.attemptsEnded, JobsEnded: p.jobsEnded}
	r := &fx.Rows
	r.Attempts, r.LateReports, r.RemovedWorkers, r.NextJob = p.attempts, p.late, p.removed, p.nextJob
	r.CacheEntries, r.CacheHits = p.cacheEntries, p.cacheHits
	r.Jobs = collectRows(p.jobs, func(j *job) muster.Job {
		row := j.rowWithProgress()
		if !j.specDirty {
			row.Spec = nil
		}
		j.dirty, j.specDirty = false, false
		return row
	})
	r.Groups = collectRows(p.groups, func(g *group) muster.Group { g.dirty = false; return g.row })
	r.Tasks = collectRows(p.tasks, func(t *task) muster.Task { t.dirty, t.storedProgress = false, nil; return t.row })
	r.Workers = collectRows(p.workers, func(w *worker) muster.Worker {
		w.dirty = false
		row := w.row
		row.LastSeenAt = w.seen
		return row
	})
	r.Totals = collectRows(p.totals, func(t *projectStats) muster.ProjectTotal {
		t.dirty = false
		return muster.ProjectTotal{Project: t.name, Counts: t.counts}
	})
	// The caller owns the returned lists; those of subjects are reused.
	clear(p.jobs)
	clear(p.groups)
	clear(p.tasks)
	clear(p.workers)
	clear(p.totals)
	*p = pending{
		jobs: p.jobs[:0], groups: p.groups[:0], tasks: p.tasks[:0], workers: p.workers[:0], totals: p.totals[:0],
		commands: make([]Command, 0, len(p.commands)), events: make([]muster.Event, 0, len(p.events)),
		attemptsStarted: make([]AttemptStarted, 0, len(p.attemptsStarted)), attemptsEnded: make([]AttemptEnded, 0, len(p.attemptsEnded)),
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

// addOnce appends x to the list unless it is marked already.
func addOnce[T any](list *[]T, marked *bool, x T) {
	if !*marked {
		*marked = true
		*list = append(*list, x)
	}
}

func (s *State) changedJob(j *job)       { addOnce(&s.out.jobs, &j.dirty, j) }
func (s *State) changedGroup(g *group)   { addOnce(&s.out.groups, &g.dirty, g) }
func (s *State) changedTask(t *task)     { addOnce(&s.out.tasks, &t.dirty, t) }
func (s *State) changedWorker(w *worker) { addOnce(&s.out.workers, &w.dirty, w) }

// removeWorker drops the pending row of a worker that is removed.
func (p *pending) removeWorker(w *worker) {
	p.workers = slices.DeleteFunc(p.workers, func(o *worker) bool { return o == w })
	p.removed = append(p.removed, w.row.ID)
}

// send queues a command for a connected worker. Others are reconciled when they join.
func (s *State) send(w *worker, cmd Command) {
	if w.connected {
		s.out.commands = append(s.out.commands, cmd)
	}
}

func (s *State) publish(e muster.Event) { s.out.events = append(s.out.events, e) }

func (s *State) publishTask(now muster.Time, t *task) {
	r := &t.row
	d := &muster.TaskDetail{Attempt: r.Attempt, Reason: r.Reason, Progress: r.Progress, Step: r.Step, Metrics: r.Metrics}
	if !r.State.Final() {
		d.Artifacts = r.Artifacts // few: see muster.MaxLiveFiles
	}
	s.publish(muster.Event{Type: muster.EventTask, At: now, Job: r.ID.Job, Task: &r.ID, State: r.State.String(), Worker: r.Worker, Detail: d})
}

func (s *State) publishJob(now muster.Time, j *job) {
	s.publish(muster.Event{Type: muster.EventJob, At: now, Job: j.row.ID, State: string(j.row.State)})
}

// publishWorker publishes a worker's state, and why it gets no tasks though it is active.
func (s *State) publishWorker(now muster.Time, w *worker) {
	reason := cmp.Or(w.constrained, w.health.AvoidReason(now))
	s.publish(muster.Event{Type: muster.EventWorker, At: now, Worker: w.row.ID, State: string(w.row.State), Constrained: reason})
}
