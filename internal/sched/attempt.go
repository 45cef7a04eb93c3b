package sched

import (
	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sched/effect"
	"github.com/muster-dev/muster/internal/sched/event"
	"github.com/muster-dev/muster/internal/sched/judge"
	"github.com/muster-dev/muster/internal/sched/model"
	"github.com/muster-dev/muster/internal/sched/queue"
)

// current returns the task whose current attempt is a, held by worker w. For any
// other attempt it returns a Conflict error.
func (s *State) current(w muster.WorkerID, a muster.AttemptID) (*model.Task, error) {
	t := s.task(a.Task)
	if t == nil || t.Worker == nil || t.Row.Attempt != a.N || t.Row.Worker != w {
		return nil, muster.Errorf(muster.Conflict, "attempt %s is not current on worker %s", a, w)
	}
	return t, nil
}

// task returns a task in memory, or nil.
func (s *State) task(id muster.TaskID) *model.Task {
	j := s.jobs[id.Job]
	if j == nil {
		return nil
	}
	if g := j.Group(id.Num); g != nil {
		return g.Tasks[id.Num-g.Row.First]
	}
	return nil
}

func (s *State) accept(now muster.Time, ev event.Accepted) error {
	t, err := s.current(ev.Worker, ev.Attempt)
	if err != nil {
		return err
	}
	s.touch(now, t.Worker)
	t.Accepted = true
	return nil
}

func (s *State) reject(now muster.Time, ev event.Rejected) error {
	t, err := s.current(ev.Worker, ev.Attempt)
	if err != nil {
		return err
	}
	if t.Row.State == muster.Running {
		return muster.Errorf(muster.Conflict, "attempt %s already runs on worker %s and cannot be rejected", ev.Attempt, ev.Worker)
	}
	w := t.Worker
	s.touch(now, w)
	t.Rejections++
	counts := t.Rejections > maxRejections
	if counts {
		t.Rejections = 0
	}
	message := judge.TruncateMessage(ev.Message)
	if !ev.Constrained {
		t.Avoid = append(t.Avoid.Active(now), queue.Avoidance{Worker: &w.Worker, Until: now.Add(minAvoid), Message: message})
	}
	s.end(now, t, judge.AttemptEnd{Outcome: muster.AttemptRejected, Reason: muster.Rejected, Message: message, Uncounted: !counts, At: now})
	return nil
}

func (s *State) start(now muster.Time, ev event.Started) error {
	t, err := s.current(ev.Worker, ev.Attempt)
	if err != nil {
		return err
	}
	s.touch(now, t.Worker)
	t.Accepted, t.Rejections, t.Avoid = true, 0, t.Avoid.Active(now)
	if t.Row.StartedAt == 0 {
		s.setStarted(t, judge.ClampTime(ev.At, t.Row.AssignedAt, now))
		s.changedTask(t)
	}
	if t.Row.State == muster.Assigned {
		s.setState(now, t, muster.Running)
	}
	return nil
}

// setStarted records the start of an attempt, and of the stage and the job if it is their first.
func (s *State) setStarted(t *model.Task, at muster.Time) {
	t.Row.StartedAt = at
	s.out.attemptsStarted = append(s.out.attemptsStarted, effect.AttemptStarted{Attempt: t.Attempt(), AssignedAt: t.Row.AssignedAt, At: at})
	if g := t.Group; g.Row.StartedAt == 0 {
		g.Row.StartedAt = at
		s.changedGroup(g)
	}
	if j := t.Group.Job; j.Row.StartedAt == 0 {
		j.Row.StartedAt = at
		s.changedJob(j)
	}
}

func (s *State) saved(now muster.Time, ev event.CheckpointSaved) error {
	t, err := s.current(ev.Worker, ev.Attempt)
	if err != nil {
		return err
	}
	s.touch(now, t.Worker)
	if t.Row.Checkpoint != ev.SHA256 {
		t.Row.Checkpoint = ev.SHA256
		s.changedTask(t)
	}
	return nil
}

func (s *State) finish(now muster.Time, ev event.Finished) error {
	r := &ev.Report
	t, err := s.current(ev.Worker, r.Attempt)
	if err != nil {
		if s.plausible(r.Attempt) {
			s.out.late = append(s.out.late, muster.LateReport{Report: *r, Worker: ev.Worker, At: now})
		}
		return err
	}
	s.touch(now, t.Worker)
	if r.StartedAt != 0 && t.Row.StartedAt == 0 {
		s.setStarted(t, judge.ClampTime(r.StartedAt, t.Row.AssignedAt, now))
	}
	judge.ApplyReport(&t.Row, r)
	reason := judge.ReasonOf(r)
	s.end(now, t, judge.AttemptEnd{
		Outcome: r.Outcome, Reason: reason, Message: judge.TruncateMessage(r.Message), NoRetry: reason == muster.WorkerLost && t.Group.Spec().Disconnect.Then == muster.DisconnectFail,
		At: judge.ClampTime(r.FinishedAt, max(t.Row.AssignedAt, t.Row.StartedAt), now),
	})
	return nil
}

// plausible reports whether the attempt may have existed. The store knows for certain and keeps the late report only then:
// ended jobs are not in memory.
func (s *State) plausible(a muster.AttemptID) bool {
	if a.Task.Job < 1 || a.Task.Job >= s.nextJob || a.Task.Num < 0 || a.Task.Num >= muster.MaxTasks || a.N < 1 {
		return false
	}
	j := s.jobs[a.Task.Job]
	if j == nil {
		return true
	}
	g := j.Group(a.Task.Num)
	if g == nil {
		return false
	}
	t := g.Tasks[a.Task.Num-g.Row.First]
	if t == nil {
		return a.Task.Num < g.Row.First+g.Row.Materialized
	}
	return a.N <= t.Row.Attempt
}
