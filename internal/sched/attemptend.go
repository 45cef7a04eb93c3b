package sched

import (
	"fmt"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sched/effect"
	"github.com/muster-dev/muster/internal/sched/judge"
	"github.com/muster-dev/muster/internal/sched/model"
	"github.com/muster-dev/muster/internal/sched/queue"
)

// end ends the current attempt of a held task. The task ends too, or is queued again.
func (s *State) end(now muster.Time, t *model.Task, e judge.AttemptEnd) {
	s.recordHealth(now, t, &e)
	s.out.attemptsEnded = append(s.out.attemptsEnded, effect.AttemptEnded{
		Attempt: t.Attempt(), UID: t.Group.Job.Row.UID, Spec: t.Group.Spec(), Worker: t.Row.Worker, Outcome: e.Outcome, Reason: e.Reason,
		QueuedAt: t.Row.QueuedAt, AssignedAt: t.Row.AssignedAt, StartedAt: t.Row.StartedAt, At: e.At, Usage: t.Row.Usage,
	})
	s.recordFailure(t.Group.Job, &e)
	s.recordUsage(t)
	if t.Group.Gang() {
		s.endMember(now, t, e)
		return
	}
	s.applyDecision(now, t, e, judge.Decide(&t.Row, t.Group.Spec(), e, s.crashLimit(t, &e)))
}

// applyDecision carries out the decision about an attempt that ended.
func (s *State) applyDecision(now muster.Time, t *model.Task, e judge.AttemptEnd, v judge.Decision) {
	if t.Worker != nil {
		if d := s.avoidFor(t, &e, v); d > 0 {
			t.Avoid = append(t.Avoid.Active(now), queue.Avoidance{Worker: &t.Worker.Worker, Until: now.Add(d), Failed: true, Message: judge.TruncateMessage(e.Message)})
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
	s.out.attempts = append(s.out.attempts, judge.HistoryRow(r, e))
	judge.ClearExecution(r)
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
func (s *State) expireLease(now muster.Time, t *model.Task) {
	d := t.Group.Spec().Disconnect
	s.end(now, t, judge.AttemptEnd{
		Outcome: muster.AttemptLost, Reason: muster.WorkerLost, At: now, NoRetry: d.Then == muster.DisconnectFail,
		Message: fmt.Sprintf("worker %s was unreachable for %s", t.Worker.Row.Name, d.Grace.Or(model.DefaultLease)),
	})
}

// loseAttempt ends an attempt that its worker no longer has. If the worker never accepted it,
// this does not count as a crash.
func (s *State) loseAttempt(now muster.Time, t *model.Task, reason muster.Reason) {
	s.end(now, t, judge.AttemptEnd{
		Outcome: muster.AttemptLost, Reason: reason, At: now, Uncounted: !t.Accepted && t.Row.State == muster.Assigned,
		Message: fmt.Sprintf("worker %s no longer has this attempt", t.Worker.Row.Name),
	})
}

// abandonAttempt ends an attempt whose worker did not confirm a stop in time.
func (s *State) abandonAttempt(now muster.Time, t *model.Task) {
	w, a := t.Worker, t.Attempt()
	e := judge.AttemptEnd{
		Outcome: muster.AttemptCancelled, Reason: muster.CancelledByUser, At: now,
		Message: fmt.Sprintf("worker %s did not confirm in time that it stopped", w.Row.Name),
	}
	if t.Row.State != muster.Cancelling {
		e.Outcome, e.Reason = muster.AttemptLost, t.PreemptReason
	}
	s.end(now, t, e)
	s.send(w, effect.Stop{Worker: w.Row.ID, Attempt: a, Outcome: muster.AttemptLost, Reason: e.Reason})
}
