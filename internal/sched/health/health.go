// Package health decides from the ends of its attempts whether a worker is avoided: after failures by its own fault for a pause, then it is
// on trial with one task at a time. It is pure.
package health

import (
	"fmt"
	"math"
	"time"

	"github.com/muster-dev/muster"
)

// LostWithWorker reports whether an attempt was lost together with its worker.
func LostWithWorker(r muster.Reason) bool {
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

// Record is the health of one worker. The zero Record is healthy. It is not safe for use by several goroutines. Times must not go
// backwards between calls.
type Record struct {
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

// Failure is an attempt that failed by its worker's fault.
type Failure struct {
	Attempt  muster.AttemptID
	Assigned muster.Time
	Reason   muster.Reason
}

// RecordFailure records a failure. All attempts that were lost together with the worker
// count as one.
func (r *Record) RecordFailure(now muster.Time, f Failure) {
	if LostWithWorker(f.Reason) {
		if r.lastLoss > 0 && f.Assigned <= r.lastLoss {
			return
		}
		r.lastLoss = now
	}
	r.score, r.at = min(r.decayedScore(now)+1, maxScore), now
	r.lastFailed, r.reason, r.failedAfter = f.Attempt, f.Reason, now.Sub(f.Assigned)
	switch {
	case r.trial == f.Attempt && r.onTrial:
		r.startPause(now)
	case !r.onTrial && r.score >= pauseScore:
		r.startPause(now)
	}
}

func (r *Record) startPause(now muster.Time) {
	d := minPause
	for range r.pauses {
		d = min(2*d, maxPause)
	}
	r.pauses++
	r.until, r.onTrial, r.trial = now.Add(d), true, muster.AttemptID{}
}

// RecordSuccess records an attempt that succeeded, or failed by its own fault.
func (r *Record) RecordSuccess(now muster.Time, a muster.AttemptID) {
	r.score, r.at = r.decayedScore(now)/2, now
	if r.onTrial && r.trial == a {
		r.onTrial, r.trial = false, muster.AttemptID{}
	}
	if !r.onTrial && r.score < healthyBelow {
		*r = Record{lastLoss: r.lastLoss}
	}
}

// RecordEnd records an attempt whose end says nothing about the worker.
func (r *Record) RecordEnd(a muster.AttemptID) {
	if r.trial == a {
		r.trial = muster.AttemptID{}
	}
}

// RecordAssigned records an attempt that the worker is assigned.
func (r *Record) RecordAssigned(now muster.Time, a muster.AttemptID) {
	if r.onTrial && r.until <= now && r.trial == (muster.AttemptID{}) {
		r.trial, r.trialAt = a, now
	}
}

// Advance ends pauses and trials and forgets old failures that are due by now.
func (r *Record) Advance(now muster.Time) {
	if at := r.trialEnd(); at > 0 && at <= now {
		r.onTrial, r.trial = false, muster.AttemptID{}
	}
	if at := r.resetTime(); at > 0 && at <= now {
		*r = Record{lastLoss: r.lastLoss}
	}
}

// trialEnd returns when the current trial will have lasted clearly longer than the
// failures before it, or 0 if there is none.
func (r *Record) trialEnd() muster.Time {
	if r.trial == (muster.AttemptID{}) {
		return 0
	}
	return r.trialAt.Add(min(max(minPause, 2*r.failedAfter), maxPause))
}

// resetTime returns when the score will have decayed, or 0 if it is zero.
func (r *Record) resetTime() muster.Time {
	if r.score == 0 {
		return 0
	}
	halvings := max(math.Log2(r.score/healthyBelow), 0)
	return max(r.at.Add(muster.Duration(halvings*float64(halfLife))+muster.Duration(time.Millisecond)), r.until)
}

// NextChange returns when advance will change something, or 0 for never.
func (r *Record) NextChange(now muster.Time) muster.Time {
	next := r.resetTime()
	for _, at := range []muster.Time{r.until, r.trialEnd()} {
		if at > now && at < next {
			next = at
		}
	}
	return next
}

// Suspect reports whether other workers that fit are preferred.
func (r *Record) Suspect() bool { return r.score > 0 }

// AvoidReason returns why the worker gets no tasks now, or "" if it may get one.
func (r *Record) AvoidReason(now muster.Time) string {
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

// Summary returns the record for display, nil for a healthy worker.
func (r *Record) Summary(now muster.Time) *muster.WorkerHealth {
	if r.score == 0 {
		return nil
	}
	h := &muster.WorkerHealth{Score: math.Round(100*math.Exp2(-r.decayedScore(now))) / 100, Reason: r.reason, Attempt: r.lastFailed, Avoided: r.AvoidReason(now)}
	if r.until > now {
		h.Until = r.until
	}
	return h
}

// decayedScore returns the score as it has decayed by now.
func (r *Record) decayedScore(now muster.Time) float64 {
	if r.score == 0 {
		return 0
	}
	return r.score * math.Exp2(-float64(now.Sub(r.at))/float64(halfLife))
}
