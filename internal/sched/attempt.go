package sched

import (
	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sched/event"
	"github.com/muster-dev/muster/internal/sched/judge"
	"github.com/muster-dev/muster/internal/sched/queue"
)

// current returns the task whose current attempt is a, held by worker w. Any
// word about another attempt is too late: a Conflict.
func (s *State) current(w muster.WorkerID, a muster.AttemptID) (*task, error) {
	t := s.task(a.Task)
	if t == nil || t.worker == nil || t.row.Attempt != a.N || t.row.Worker != w {
		return nil, muster.Errorf(muster.Conflict, "attempt %s is not current on worker %s", a, w)
	}
	return t, nil
}

// task returns a task in memory, or nil.
func (s *State) task(id muster.TaskID) *task {
	j := s.jobs[id.Job]
	if j == nil {
		return nil
	}
	if g := j.group(id.Num); g != nil {
		return g.tasks[id.Num-g.row.First]
	}
	return nil
}

// group returns the group that has the task of that number, or nil.
func (j *job) group(num int) *group {
	lo, hi := 0, len(j.groups)
	for lo < hi {
		mid := (lo + hi) / 2
		switch g := j.groups[mid]; {
		case num < g.row.First:
			hi = mid
		case num >= g.row.First+g.row.Size:
			lo = mid + 1
		default:
			return g
		}
	}
	return nil
}

func (s *State) accept(now muster.Time, ev event.Accepted) error {
	t, err := s.current(ev.Worker, ev.Attempt)
	if err != nil {
		return err
	}
	s.hear(now, t.worker)
	t.accepted = true
	return nil
}

func (s *State) reject(now muster.Time, ev event.Rejected) error {
	t, err := s.current(ev.Worker, ev.Attempt)
	if err != nil {
		return err
	}
	if t.row.State == muster.Running {
		return muster.Errorf(muster.Conflict, "attempt %s runs already on worker %s: it cannot be rejected", ev.Attempt, ev.Worker)
	}
	w := t.worker
	s.hear(now, w)
	t.rejections++
	counts := t.rejections > mostRejection
	if counts {
		t.rejections = 0
	}
	said := judge.Clip(ev.Message)
	t.avoid = append(t.avoid.Now(now), queue.Shun{Worker: &w.Worker, Until: now.Add(shunnedFor), Said: said})
	s.end(now, t, judge.Ending{Outcome: muster.AttemptRejected, Reason: muster.Rejected, Message: said, Free: !counts, At: now})
	return nil
}

func (s *State) start(now muster.Time, ev event.Started) error {
	t, err := s.current(ev.Worker, ev.Attempt)
	if err != nil {
		return err
	}
	s.hear(now, t.worker)
	t.accepted, t.rejections, t.avoid = true, 0, t.avoid.Now(now)
	if t.row.StartedAt == 0 {
		s.startedAt(t, judge.Within(ev.At, t.row.AssignedAt, now))
		s.changedTask(t)
	}
	if t.row.State == muster.Assigned {
		s.set(now, t, muster.Running)
	}
	return nil
}

// startedAt notes the start of an attempt, and of the job if it is its first.
func (s *State) startedAt(t *task, at muster.Time) {
	t.row.StartedAt = at
	if j := t.group.job; j.row.StartedAt == 0 {
		j.row.StartedAt = at
		s.changedJob(j)
	}
}

func (s *State) progress(now muster.Time, ev event.Progressed) error {
	p := &ev.Progress
	t, err := s.current(ev.Worker, p.Attempt)
	if err != nil {
		return err
	}
	if err := judge.CheckProgress(p); err != nil {
		return err
	}
	s.hear(now, t.worker)
	if p.Progress != nil {
		t.row.Progress = p.Progress
	}
	if p.Step != nil {
		t.row.Step = *p.Step
	}
	if len(p.Metrics) > 0 {
		t.row.Metrics = judge.Merged(t.row.Metrics, p.Metrics)
	}
	if len(p.Artifacts) > 0 {
		t.row.Artifacts = p.Artifacts
	}
	s.changedTask(t)
	s.publishTask(now, t)
	return nil
}

func (s *State) saved(now muster.Time, ev event.Saved) error {
	t, err := s.current(ev.Worker, ev.Attempt)
	if err != nil {
		return err
	}
	s.hear(now, t.worker)
	if t.row.Checkpoint != ev.SHA256 {
		t.row.Checkpoint = ev.SHA256
		s.changedTask(t)
	}
	return nil
}

func (s *State) finish(now muster.Time, ev event.Finished) error {
	r := &ev.Report
	if err := judge.CheckReport(r); err != nil {
		return err
	}
	t, err := s.current(ev.Worker, r.Attempt)
	if err != nil {
		if s.plausible(r.Attempt) {
			s.out.late = append(s.out.late, *r)
		}
		return err
	}
	s.hear(now, t.worker)
	if r.StartedAt != 0 && t.row.StartedAt == 0 {
		s.startedAt(t, judge.Within(r.StartedAt, t.row.AssignedAt, now))
	}
	judge.Fill(&t.row, r)
	s.end(now, t, judge.Ending{
		Outcome: r.Outcome, Reason: judge.Reason(r), Message: judge.Clip(r.Message), At: judge.Within(r.FinishedAt, max(t.row.AssignedAt, t.row.StartedAt), now),
	})
	return nil
}

// plausible reports whether the attempt may have been, so that no stranger fills
// the store with reports of what never was.
func (s *State) plausible(a muster.AttemptID) bool {
	if a.Task.Job < 1 || a.Task.Job >= s.next || a.Task.Num < 0 || a.Task.Num >= muster.MaxArray || a.N < 1 {
		return false
	}
	j := s.jobs[a.Task.Job]
	if j == nil {
		return true
	}
	g := j.group(a.Task.Num)
	if g == nil {
		return false
	}
	t := g.tasks[a.Task.Num-g.row.First]
	if t == nil {
		return a.Task.Num < g.row.First+g.row.Next
	}
	return a.N <= t.row.Attempt
}
