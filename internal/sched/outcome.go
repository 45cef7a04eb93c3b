package sched

import (
	"fmt"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sched/effect"
	"github.com/muster-dev/muster/internal/sched/judge"
	"github.com/muster-dev/muster/internal/sched/queue"
)

// end ends the current attempt of a held task: the task ends too, or is queued
// again.
func (s *State) end(now muster.Time, t *task, e judge.Ending) {
	if t.group.gang() {
		s.endMember(now, t, e)
		return
	}
	s.conclude(now, t, e, judge.Judge(&t.row, t.group.spec(), e, s.cfg.CrashLimit))
}

// conclude carries out the verdict on an attempt that ended.
func (s *State) conclude(now muster.Time, t *task, e judge.Ending, v judge.Verdict) {
	if t.worker != nil {
		if judge.Elsewhere(e.Reason) {
			shun := queue.Shun{Worker: &t.worker.Worker, Until: now.Add(max(v.Pause, shunnedFor)), Failed: true, Said: judge.Clip(e.Message)}
			t.avoid = append(t.avoid.Now(now), shun)
		}
		s.release(t)
	}
	t.stopBy, t.room = 0, muster.NoReason
	t.row.Retried += v.Retried
	t.row.Crashes += v.Crashes
	if v.To != muster.Queued {
		if v.To == muster.Succeeded {
			t.ran(e.At)
		}
		t.row.Reason, t.row.Message, t.row.FinishedAt = v.Reason, v.Message, e.At
		s.set(now, t, v.To)
		return
	}
	r := &t.row
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

// ran notes for how long the task ran that ended well.
func (t *task) ran(end muster.Time) {
	if t.row.StartedAt > 0 {
		t.shape.Ran++
		t.shape.Runtime += end.Sub(t.row.StartedAt)
	}
}

// expire ends an attempt whose worker has been away for its whole grace.
func (s *State) expire(now muster.Time, t *task) {
	d := t.group.spec().Disconnect
	s.end(now, t, judge.Ending{
		Outcome: muster.AttemptLost, Reason: muster.WorkerLost, At: now, Final: d.Then == muster.ThenFail,
		Message: fmt.Sprintf("worker %s was not heard for %s", t.worker.row.Name, d.Grace.Or(defaultLease)),
	})
}

// miss ends an attempt that its worker does not have. If the worker never said
// that it took it, that is no sign of a crash.
func (s *State) miss(now muster.Time, t *task) {
	s.end(now, t, judge.Ending{
		Outcome: muster.AttemptLost, Reason: muster.WorkerRestarted, At: now, Free: !t.accepted && t.row.State == muster.Assigned,
		Message: fmt.Sprintf("worker %s does not have it (any more)", t.worker.row.Name),
	})
}

// giveUp ends an attempt that was told to end and whose worker did not confirm in
// time that it did.
func (s *State) giveUp(now muster.Time, t *task) {
	w, a := t.worker, t.attempt()
	e := judge.Ending{
		Outcome: muster.AttemptCancelled, Reason: muster.CancelledByUser, At: now,
		Message: fmt.Sprintf("worker %s did not confirm in time that it stopped", w.row.Name),
	}
	if t.row.State != muster.Cancelling {
		e.Outcome, e.Reason = muster.AttemptLost, t.room
	}
	s.end(now, t, e)
	s.tell(w, effect.Stop{Worker: w.row.ID, Attempt: a, Outcome: muster.AttemptLost, Reason: e.Reason})
}
