package sched

import (
	"fmt"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sched/queue"
)

// current returns the task whose current attempt is a, held by worker w. For any
// other attempt it returns a Conflict error.
func (s *State) current(w muster.WorkerID, a muster.AttemptID) (*task, error) {
	t := s.task(a.Task)
	if t == nil || t.Worker == nil || t.Row.Attempt != a.N || t.Row.Worker != w {
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
	if g := j.Group(id.Num); g != nil {
		return g.Tasks[id.Num-g.Row.First]
	}
	return nil
}

func (s *State) accept(now muster.Time, ev Accepted) error {
	t, err := s.current(ev.Worker, ev.Attempt)
	if err != nil {
		return err
	}
	s.touch(now, t.Worker)
	t.Accepted = true
	return nil
}

func (s *State) reject(now muster.Time, ev Rejected) error {
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
	message := truncateMessage(ev.Message)
	if !ev.Constrained {
		t.Avoid = append(t.Avoid.Active(now), queue.Avoidance{Worker: &w.Worker, Until: now.Add(minAvoid), Message: message})
	}
	s.end(now, t, attemptEnd{Outcome: muster.AttemptRejected, Reason: muster.Rejected, Message: message, Uncounted: !counts, At: now})
	return nil
}

func (s *State) start(now muster.Time, ev Started) error {
	t, err := s.current(ev.Worker, ev.Attempt)
	if err != nil {
		return err
	}
	s.touch(now, t.Worker)
	t.Accepted, t.Rejections, t.Avoid = true, 0, t.Avoid.Active(now)
	if t.Row.StartedAt == 0 {
		s.setStarted(t, clampTime(ev.At, t.Row.AssignedAt, now))
		s.changedTask(t)
	}
	if t.Row.State == muster.Assigned {
		s.setState(now, t, muster.Running)
	}
	return nil
}

// setStarted records the start of an attempt, and of the stage and the job if it is their first.
func (s *State) setStarted(t *task, at muster.Time) {
	t.Row.StartedAt = at
	s.out.attemptsStarted = append(s.out.attemptsStarted, AttemptStarted{Attempt: t.Attempt(), AssignedAt: t.Row.AssignedAt, At: at})
	if g := t.Group; g.Row.StartedAt == 0 {
		g.Row.StartedAt = at
		s.changedGroup(g)
	}
	if j := t.Group.Job; j.Row.StartedAt == 0 {
		j.Row.StartedAt = at
		s.changedJob(j)
	}
}

func (s *State) saved(now muster.Time, ev CheckpointSaved) error {
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

func (s *State) finish(now muster.Time, ev Finished) error {
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
		s.setStarted(t, clampTime(r.StartedAt, t.Row.AssignedAt, now))
	}
	applyReport(&t.Row, r)
	reason := reasonOf(r)
	s.end(now, t, attemptEnd{
		Outcome: r.Outcome, Reason: reason, Message: truncateMessage(r.Message), NoRetry: reason == muster.WorkerLost && t.Group.Spec().Disconnect.Then == muster.DisconnectFail,
		At: clampTime(r.FinishedAt, max(t.Row.AssignedAt, t.Row.StartedAt), now),
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

// end ends the current attempt of a held task. The task ends too, or is queued again.
func (s *State) end(now muster.Time, t *task, e attemptEnd) {
	s.recordHealth(now, t, &e)
	s.out.attemptsEnded = append(s.out.attemptsEnded, AttemptEnded{
		Attempt: t.Attempt(), UID: t.Group.Job.Row.UID, Spec: t.Group.Spec(), Worker: t.Row.Worker, Outcome: e.Outcome, Reason: e.Reason,
		QueuedAt: t.Row.QueuedAt, AssignedAt: t.Row.AssignedAt, StartedAt: t.Row.StartedAt, At: e.At, Usage: t.Row.Usage,
	})
	s.recordFailure(t.Group.Job, &e)
	s.recordUsage(t)
	if t.Group.Gang() {
		s.endMember(now, t, e)
		return
	}
	s.applyDecision(now, t, e, decide(&t.Row, t.Group.Spec(), e, s.crashLimit(t, &e)))
}

// applyDecision carries out the decision about an attempt that ended.
func (s *State) applyDecision(now muster.Time, t *task, e attemptEnd, v decision) {
	if t.Worker != nil {
		if d := s.avoidFor(t, &e, v); d > 0 {
			t.Avoid = append(t.Avoid.Active(now), queue.Avoidance{Worker: &t.Worker.Worker, Until: now.Add(d), Failed: true, Message: truncateMessage(e.Message)})
		}
		s.release(now, t)
	}
	t.StopBy, t.PreemptReason = 0, muster.NoReason
	t.Row.Retried += v.Retried
	t.Row.Crashes += v.Crashes
	if v.State != muster.Queued {
		if v.State == muster.Succeeded {
			t.RecordRuntime(e.At)
		}
		t.Row.Reason, t.Row.Message, t.Row.FinishedAt = v.Reason, v.Message, e.At
		s.setState(now, t, v.State)
		return
	}
	r := &t.Row
	s.out.attempts = append(s.out.attempts, historyRow(r, e))
	clearExecution(r)
	r.Reason, r.Message = v.Reason, v.Message
	if e.Outcome != muster.AttemptRejected {
		r.QueuedAt = now
	}
	if v.Backoff > 0 {
		r.NotBefore = now.Add(v.Backoff)
	}
	s.setState(now, t, muster.Queued)
	if v.Backoff <= 0 {
		s.enqueue(t)
	}
}

// expireLease ends an attempt whose worker has been unreachable for the whole disconnect.grace.
func (s *State) expireLease(now muster.Time, t *task) {
	d := t.Group.Spec().Disconnect
	s.end(now, t, attemptEnd{
		Outcome: muster.AttemptLost, Reason: muster.WorkerLost, At: now, NoRetry: d.Then == muster.DisconnectFail,
		Message: fmt.Sprintf("worker %s was unreachable for %s", t.Worker.Row.Name, d.Grace.Or(defaultLease)),
	})
}

// loseAttempt ends an attempt that its worker no longer has. If the worker never accepted it,
// this does not count as a crash.
func (s *State) loseAttempt(now muster.Time, t *task, reason muster.Reason) {
	s.end(now, t, attemptEnd{
		Outcome: muster.AttemptLost, Reason: reason, At: now, Uncounted: !t.Accepted && t.Row.State == muster.Assigned,
		Message: fmt.Sprintf("worker %s no longer has this attempt", t.Worker.Row.Name),
	})
}

// abandonAttempt ends an attempt whose worker did not confirm a stop in time.
func (s *State) abandonAttempt(now muster.Time, t *task) {
	w, a := t.Worker, t.Attempt()
	e := attemptEnd{
		Outcome: muster.AttemptCancelled, Reason: muster.CancelledByUser, At: now,
		Message: fmt.Sprintf("worker %s did not confirm in time that it stopped", w.Row.Name),
	}
	if t.Row.State != muster.Cancelling {
		e.Outcome, e.Reason = muster.AttemptLost, t.PreemptReason
	}
	s.end(now, t, e)
	s.send(w, Stop{Worker: w.Row.ID, Attempt: a, Outcome: muster.AttemptLost, Reason: e.Reason})
}
