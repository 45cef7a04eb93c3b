package sched

import (
	"fmt"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sched/queue"
	"github.com/muster-dev/muster/internal/sched/report"
	"github.com/muster-dev/muster/internal/sched/retry"
)

// current returns the task whose current attempt is a, held by worker w. For any
// other attempt it returns a Conflict error.
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

func (s *State) accept(now muster.Time, ev Accepted) error {
	t, err := s.current(ev.Worker, ev.Attempt)
	if err != nil {
		return err
	}
	s.touch(now, t.worker)
	t.accepted = true
	return nil
}

func (s *State) reject(now muster.Time, ev Rejected) error {
	t, err := s.current(ev.Worker, ev.Attempt)
	if err != nil {
		return err
	}
	if t.row.State == muster.Running {
		return muster.Errorf(muster.Conflict, "attempt %s already runs on worker %s and cannot be rejected", ev.Attempt, ev.Worker)
	}
	w := t.worker
	s.touch(now, w)
	t.rejections++
	counts := t.rejections > maxRejections
	if counts {
		t.rejections = 0
	}
	message := report.TruncateMessage(ev.Message)
	if !ev.Constrained {
		until := now.Add(minAvoid)
		if ev.Final {
			until = now.Add(finalAvoid)
		}
		t.avoid = append(t.avoid.Active(now), queue.Avoidance{Worker: &w.Worker, Until: until, Message: message})
	}
	s.end(now, t, retry.End{Outcome: muster.AttemptRejected, Reason: muster.Rejected, Message: message, Uncounted: !counts, At: now})
	return nil
}

func (s *State) start(now muster.Time, ev Started) error {
	t, err := s.current(ev.Worker, ev.Attempt)
	if err != nil {
		return err
	}
	s.touch(now, t.worker)
	t.accepted, t.rejections, t.avoid = true, 0, t.avoid.Active(now)
	if t.row.StartedAt == 0 {
		s.setStarted(t, report.ClampTime(ev.At, t.row.AssignedAt, now))
		s.changedTask(t)
	}
	if t.row.State == muster.Assigned {
		s.setState(now, t, muster.Running)
	}
	return nil
}

// setStarted records the start of an attempt, and of the stage and the job if it is their first.
func (s *State) setStarted(t *task, at muster.Time) {
	t.row.StartedAt = at
	s.out.attemptsStarted = append(s.out.attemptsStarted, AttemptStarted{Attempt: t.attempt(), AssignedAt: t.row.AssignedAt, At: at})
	if g := t.group; g.row.StartedAt == 0 {
		g.row.StartedAt = at
		s.changedGroup(g)
	}
	if j := t.group.job; j.row.StartedAt == 0 {
		j.row.StartedAt = at
		s.changedJob(j)
	}
}

func (s *State) saved(now muster.Time, ev CheckpointSaved) error {
	t, err := s.current(ev.Worker, ev.Attempt)
	if err != nil {
		return err
	}
	s.touch(now, t.worker)
	if t.row.Checkpoint != ev.SHA256 {
		t.row.Checkpoint = ev.SHA256
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
	s.touch(now, t.worker)
	if r.StartedAt != 0 && t.row.StartedAt == 0 {
		s.setStarted(t, report.ClampTime(r.StartedAt, t.row.AssignedAt, now))
	}
	report.Apply(&t.row, r)
	reason := report.Reason(r)
	s.end(now, t, retry.End{
		Outcome: r.Outcome, Reason: reason, Message: report.TruncateMessage(r.Message), NoRetry: reason == muster.WorkerLost && t.group.spec().Disconnect.Then == muster.DisconnectFail,
		At: report.ClampTime(r.FinishedAt, max(t.row.AssignedAt, t.row.StartedAt), now),
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
	g := j.group(a.Task.Num)
	if g == nil {
		return false
	}
	t := g.tasks[a.Task.Num-g.row.First]
	if t == nil {
		return a.Task.Num < g.row.First+g.row.Materialized
	}
	return a.N <= t.row.Attempt
}

// end ends the current attempt of a held task. The task ends too, or is queued again.
func (s *State) end(now muster.Time, t *task, e retry.End) {
	s.recordHealth(now, t, &e)
	s.out.attemptsEnded = append(s.out.attemptsEnded, AttemptEnded{
		Attempt: t.attempt(), UID: t.group.job.row.UID, Spec: t.group.spec(), Worker: t.row.Worker, Outcome: e.Outcome, Reason: e.Reason,
		QueuedAt: t.row.QueuedAt, AssignedAt: t.row.AssignedAt, StartedAt: t.row.StartedAt, At: e.At, Usage: t.row.Usage,
	})
	s.recordFailure(t.group.job, &e)
	s.recordUsage(t)
	if t.group.gang() {
		s.endMember(now, t, e)
		return
	}
	s.applyDecision(now, t, e, retry.Decide(&t.row, t.group.spec(), e, s.crashLimit(t, &e)))
}

// applyDecision carries out the decision about an attempt that ended.
func (s *State) applyDecision(now muster.Time, t *task, e retry.End, v retry.Decision) {
	if t.row.Cache != nil {
		defer s.cacheEnded(now, t, &v)
	}
	if t.worker != nil {
		if d := s.avoidFor(t, &e, v); d > 0 {
			t.avoid = append(t.avoid.Active(now), queue.Avoidance{Worker: &t.worker.Worker, Until: now.Add(d), Failed: true, Message: report.TruncateMessage(e.Message)})
		}
		s.release(now, t)
	}
	t.stopBy, t.preemptReason = 0, muster.NoReason
	t.row.Retries += v.Retried
	t.row.Crashes += v.Crashes
	if v.State != muster.Queued {
		if v.State == muster.Succeeded {
			t.recordRuntime(e.At)
		}
		t.row.Reason, t.row.Message, t.row.FinishedAt = v.Reason, v.Message, e.At
		s.setState(now, t, v.State)
		return
	}
	r := &t.row
	s.out.attempts = append(s.out.attempts, report.HistoryRow(r, e))
	report.ClearExecution(r)
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
	d := t.group.spec().Disconnect
	s.end(now, t, retry.End{
		Outcome: muster.AttemptLost, Reason: muster.WorkerLost, At: now, NoRetry: d.Then == muster.DisconnectFail,
		Message: fmt.Sprintf("worker %s was unreachable for %s", t.worker.row.Name, d.Grace.Or(muster.DefaultDisconnectGrace)),
	})
}

// loseAttempt ends an attempt that its worker no longer has. If the worker never accepted it,
// this does not count as a crash.
func (s *State) loseAttempt(now muster.Time, t *task, reason muster.Reason) {
	s.end(now, t, retry.End{
		Outcome: muster.AttemptLost, Reason: reason, At: now, Uncounted: !t.accepted && t.row.State == muster.Assigned,
		Message: fmt.Sprintf("worker %s no longer has this attempt", t.worker.row.Name),
	})
}

// abandonAttempt ends an attempt whose worker did not confirm a stop in time.
func (s *State) abandonAttempt(now muster.Time, t *task) {
	w, a := t.worker, t.attempt()
	e := retry.End{
		Outcome: muster.AttemptCancelled, Reason: muster.CancelledByUser, At: now,
		Message: fmt.Sprintf("worker %s did not confirm in time that it stopped", w.row.Name),
	}
	if t.row.State != muster.Cancelling {
		e.Outcome, e.Reason = muster.AttemptLost, t.preemptReason
	}
	s.end(now, t, e)
	s.send(w, Stop{Worker: w.row.ID, Attempt: a, Outcome: muster.AttemptLost, Reason: e.Reason})
}
