package sched

import (
	"fmt"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sched/effect"
	"github.com/muster-dev/muster/internal/sched/judge"
	"github.com/muster-dev/muster/internal/sched/model"
	"github.com/muster-dev/muster/internal/sched/queue"
)

// end ends the current attempt of a held task: the task ends too, or is queued
// again.
func (s *State) end(now muster.Time, t *model.Task, e judge.Ending) {
	s.noteHealth(now, t, &e)
	s.out.ended = append(s.out.ended, effect.Ended{
		Attempt: t.Attempt(), UID: t.Group.Job.Row.UID, Spec: t.Group.Spec(), Worker: t.Row.Worker, Outcome: e.Outcome, Reason: e.Reason,
		QueuedAt: t.Row.QueuedAt, AssignedAt: t.Row.AssignedAt, StartedAt: t.Row.StartedAt, At: e.At, Usage: t.Row.Usage,
	})
	s.noteFailure(t.Group.Job, &e)
	s.noteUsage(t)
	if t.Group.Gang() {
		s.endMember(now, t, e)
		return
	}
	s.conclude(now, t, e, judge.Judge(&t.Row, t.Group.Spec(), e, s.crashLimit(t, &e)))
}

// conclude carries out the verdict on an attempt that ended.
func (s *State) conclude(now muster.Time, t *model.Task, e judge.Ending, v judge.Verdict) {
	if t.Worker != nil {
		if d := s.shuns(t, &e, v); d > 0 {
			t.Avoid = append(t.Avoid.Now(now), queue.Shun{Worker: &t.Worker.Worker, Until: now.Add(d), Failed: true, Said: judge.Clip(e.Message)})
		}
		s.release(now, t)
	}
	t.StopBy, t.Room = 0, muster.NoReason
	t.Row.Retried += v.Retried
	t.Row.Crashes += v.Crashes
	if v.To != muster.Queued {
		if v.To == muster.Succeeded {
			t.Ran(e.At)
		}
		t.Row.Reason, t.Row.Message, t.Row.FinishedAt = v.Reason, v.Message, e.At
		s.set(now, t, v.To)
		return
	}
	r := &t.Row
	s.out.attempts = append(s.out.attempts, judge.Past(r, e))
	judge.Clear(r)
	r.Reason, r.Message = v.Reason, v.Message
	if e.Outcome != muster.AttemptRejected {
		r.QueuedAt = now
	}
	if v.Pause > 0 {
		r.NotBefore = now.Add(v.Pause)
	}
	s.set(now, t, muster.Queued)
	if v.Pause <= 0 {
		s.enqueue(t)
	}
}

// expire ends an attempt whose worker has been away for its whole grace.
func (s *State) expire(now muster.Time, t *model.Task) {
	d := t.Group.Spec().Disconnect
	s.end(now, t, judge.Ending{
		Outcome: muster.AttemptLost, Reason: muster.WorkerLost, At: now, Final: d.Then == muster.DisconnectFail,
		Message: fmt.Sprintf("worker %s was not heard for %s", t.Worker.Row.Name, d.Grace.Or(model.DefaultLease)),
	})
}

// miss ends an attempt that its worker does not have: it came back without it, or lost it
// while it was there. If the worker never said that it took it, that is no sign of a crash.
func (s *State) miss(now muster.Time, t *model.Task, why muster.Reason) {
	s.end(now, t, judge.Ending{
		Outcome: muster.AttemptLost, Reason: why, At: now, Free: !t.Accepted && t.Row.State == muster.Assigned,
		Message: fmt.Sprintf("worker %s does not have it (any more)", t.Worker.Row.Name),
	})
}

// giveUp ends an attempt that was told to end and whose worker did not confirm in
// time that it did.
func (s *State) giveUp(now muster.Time, t *model.Task) {
	w, a := t.Worker, t.Attempt()
	e := judge.Ending{
		Outcome: muster.AttemptCancelled, Reason: muster.CancelledByUser, At: now,
		Message: fmt.Sprintf("worker %s did not confirm in time that it stopped", w.Row.Name),
	}
	if t.Row.State != muster.Cancelling {
		e.Outcome, e.Reason = muster.AttemptLost, t.Room
	}
	s.end(now, t, e)
	s.tell(w, effect.Stop{Worker: w.Row.ID, Attempt: a, Outcome: muster.AttemptLost, Reason: e.Reason})
}
