package sched

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/placement"
	"github.com/muster-dev/muster/internal/sched/retry"
)

// recordHealth records the end of an attempt in its worker's health.
func (s *State) recordHealth(now muster.Time, t *task, e *retry.End) {
	w, a := t.worker, t.attempt()
	if w == nil {
		return
	}
	switch faultOf(&t.row, e, t.group.row.Counts[muster.Succeeded] > 0) {
	case workerFault:
		w.health.recordFailure(now, healthFailure{attempt: a, assigned: t.row.AssignedAt, reason: e.Reason})
	case taskFault:
		w.health.recordSuccess(now, a)
	case noFault:
		w.health.recordEnd(a)
	}
	s.onHealthChange(now, w)
}

// onHealthChange updates the queue and the worker's state after its health may have changed.
func (s *State) onHealthChange(now muster.Time, w *worker) {
	suspect, closed := w.health.suspect(), w.health.avoidReason(now) != ""
	if suspect != w.Suspect {
		w.Suspect = suspect
		s.queue.LoadChanged(&w.Worker)
	}
	if !suspect && !closed && !w.avoided {
		return
	}
	if s.deriveState(now, w); closed != w.avoided {
		w.avoided = closed
		s.publishWorker(now, w)
	}
	s.armWorker(now, w)
}

// avoidFor returns for how long a task prefers other workers after an attempt ended so on
// its worker: longer each time while other workers could run it. It is short for a gang,
// which may need all workers at once.
func (s *State) avoidFor(t *task, e *retry.End, v retry.Decision) muster.Duration {
	switch {
	case v.State != muster.Queued || faultOf(&t.row, e, true) != workerFault || lostWithWorker(e.Reason):
		return 0
	case !t.group.gang() && s.otherWorkerFits(t, []*worker{t.worker}):
		d := minAvoid
		for range t.row.Crashes {
			d = min(2*d, maxAvoid)
		}
		return max(v.Backoff, d)
	case retry.PreferOtherWorker(e.Reason):
		return max(v.Backoff, minAvoid)
	default:
		return 0
	}
}

// crashLimit returns how many attempts of a task may fail by the fleet's fault. A task
// that failed on few workers does not fail for good while another worker could run it,
// unless its worker was lost: then the task itself may crash workers.
func (s *State) crashLimit(t *task, e *retry.End) int {
	if t.worker == nil || faultOf(&t.row, e, true) != workerFault {
		return s.cfg.CrashLimit
	}
	if !slices.Contains(t.failedOn, t.worker) && len(t.failedOn) < minCrashWorkers {
		t.failedOn = append(t.failedOn, t.worker)
	}
	if lostWithWorker(e.Reason) || len(t.failedOn) >= minCrashWorkers || !s.otherWorkerFits(t, t.failedOn) {
		return s.cfg.CrashLimit
	}
	return max(s.cfg.CrashLimit, t.row.Crashes+1)
}

// otherWorkerFits reports whether a worker outside except could run the task. An unreachable
// one counts: it may reconnect.
func (s *State) otherWorkerFits(t *task, except []*worker) bool {
	need := s.shapeOf(t.group).Need
	return slices.ContainsFunc(s.workers, func(w *worker) bool {
		open := !w.gone && !w.row.Paused && !w.row.Draining
		return open && !slices.Contains(except, w) && w.Usage.FitsEmpty(need) == placement.Fits
	})
}

// lostWithWorker reports whether an attempt was lost together with its worker.
func lostWithWorker(r muster.Reason) bool {
	return r == muster.WorkerLost || r == muster.WorkerRestarted
}

// The parameters.
const (
	halfLife     = muster.Duration(10 * time.Minute)
	minPause     = muster.Duration(10 * time.Second)
	maxPause     = muster.Duration(5 * time.Minute)
	pauseScore   = 3   // a worker with this score is paused
	maxScore     = 6   // the score does not exceed it
	healthyBelow = 0.5 // below this score the record is reset
)

// healthRecord is the health of one worker. The zero Record is healthy. Times must not go
// backwards between calls.
type healthRecord struct {
	score   float64
	at      muster.Time // when score was computed
	pauses  int         // since the worker was last healthy
	until   muster.Time // the end of the last pause
	onTrial bool        // paused, or gets one task at a time

	trial       muster.AttemptID // current one, or zero
	trialAt     muster.Time
	failedAfter muster.Duration // age of the last failed attempt
	lastLoss    muster.Time     // when attempts were last lost together with the worker

	lastFailed muster.AttemptID
	reason     muster.Reason // why it failed
}

// healthFailure is an attempt that failed by its worker's fault.
type healthFailure struct {
	attempt  muster.AttemptID
	assigned muster.Time
	reason   muster.Reason
}

// recordFailure records a failure. All attempts that were lost together with the worker
// count as one.
func (r *healthRecord) recordFailure(now muster.Time, f healthFailure) {
	if f.reason == muster.WorkerLost || f.reason == muster.WorkerRestarted {
		if r.lastLoss > 0 && f.assigned <= r.lastLoss {
			return
		}
		r.lastLoss = now
	}
	r.score, r.at = min(r.decayedScore(now)+1, maxScore), now
	r.lastFailed, r.reason, r.failedAfter = f.attempt, f.reason, now.Sub(f.assigned)
	switch {
	case r.trial == f.attempt && r.onTrial:
		r.startPause(now)
	case !r.onTrial && r.score >= pauseScore:
		r.startPause(now)
	}
}

func (r *healthRecord) startPause(now muster.Time) {
	d := minPause
	for range r.pauses {
		d = min(2*d, maxPause)
	}
	r.pauses++
	r.until, r.onTrial, r.trial = now.Add(d), true, muster.AttemptID{}
}

// recordSuccess records an attempt that succeeded, or failed by its own fault.
func (r *healthRecord) recordSuccess(now muster.Time, a muster.AttemptID) {
	r.score, r.at = r.decayedScore(now)/2, now
	if r.onTrial && r.trial == a {
		r.onTrial, r.trial = false, muster.AttemptID{}
	}
	if !r.onTrial && r.score < healthyBelow {
		*r = healthRecord{lastLoss: r.lastLoss}
	}
}

// recordEnd records an attempt whose end says nothing about the worker.
func (r *healthRecord) recordEnd(a muster.AttemptID) {
	if r.trial == a {
		r.trial = muster.AttemptID{}
	}
}

// recordAssigned records an attempt that the worker is assigned.
func (r *healthRecord) recordAssigned(now muster.Time, a muster.AttemptID) {
	if r.onTrial && r.until <= now && r.trial == (muster.AttemptID{}) {
		r.trial, r.trialAt = a, now
	}
}

// advance ends pauses and trials and forgets old failures that are due by now.
func (r *healthRecord) advance(now muster.Time) {
	if at := r.trialEnd(); at > 0 && at <= now {
		r.onTrial, r.trial = false, muster.AttemptID{}
	}
	if at := r.resetTime(); at > 0 && at <= now {
		*r = healthRecord{lastLoss: r.lastLoss}
	}
}

// trialEnd returns when the current trial will have lasted clearly longer than the
// failures before it, or 0 if there is none.
func (r *healthRecord) trialEnd() muster.Time {
	if r.trial == (muster.AttemptID{}) {
		return 0
	}
	return r.trialAt.Add(min(max(minPause, 2*r.failedAfter), maxPause))
}

// resetTime returns when the score will have decayed, or 0 if it is zero.
func (r *healthRecord) resetTime() muster.Time {
	if r.score == 0 {
		return 0
	}
	halvings := max(math.Log2(r.score/healthyBelow), 0)
	return max(r.at.Add(muster.Duration(halvings*float64(halfLife))+muster.Duration(time.Millisecond)), r.until)
}

// nextChange returns when advance will change something, or 0 for never.
func (r *healthRecord) nextChange(now muster.Time) muster.Time {
	next := r.resetTime()
	for _, at := range []muster.Time{r.until, r.trialEnd()} {
		if at > now && at < next {
			next = at
		}
	}
	return next
}

// suspect reports whether other workers that fit are preferred.
func (r *healthRecord) suspect() bool { return r.score > 0 }

// avoidReason returns why the worker gets no tasks now, or "" if it may get one.
func (r *healthRecord) avoidReason(now muster.Time) string {
	switch {
	case !r.onTrial:
		return ""
	case r.until > now:
		return fmt.Sprintf("is avoided until %s, because attempts keep failing there (%s)", r.until, r.reason)
	case r.trial != (muster.AttemptID{}):
		return fmt.Sprintf("is on trial with task %s, because attempts kept failing there (%s)", r.trial.Task, r.reason)
	default:
		return ""
	}
}

// summary returns the record for display, nil for a healthy worker.
func (r *healthRecord) summary(now muster.Time) *muster.WorkerHealth {
	if r.score == 0 {
		return nil
	}
	h := &muster.WorkerHealth{Score: math.Round(100*math.Exp2(-r.decayedScore(now))) / 100, Reason: r.reason, Attempt: r.lastFailed, Avoided: r.avoidReason(now)}
	if r.until > now {
		h.Until = r.until
	}
	return h
}

// decayedScore returns the score as it has decayed by now.
func (r *healthRecord) decayedScore(now muster.Time) float64 {
	if r.score == 0 {
		return 0
	}
	return r.score * math.Exp2(-float64(now.Sub(r.at))/float64(halfLife))
}
