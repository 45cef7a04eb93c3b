// Package health keeps a record of how attempts end on one worker, and says when the
// worker is avoided because they keep failing there through no fault of their own. It
// is a circuit breaker, and pure.
//
//	          score over the limit             pause over, next assignment
//	healthy ───────────────────────► paused ─────────────────────────► on trial
//	   ▲                               ▲                                  │  │
//	   │                               └───────── the trial fails ────────┘  │
//	   └──────────── the trial succeeds, or outlasts the failures ───────────┘
//
// The score is a number of recent failures. It halves with every attempt that ends well,
// and every HalfLife. While it is not zero, other workers that fit go first. A worker over
// the limit is given nothing for a pause that doubles each time, up to MaxPause; then one
// task at a time until one shows that the worker is well. A worker is therefore never
// avoided for good, and a fleet of unhealthy workers still works.
package health

import (
	"fmt"
	"math"
	"time"

	"github.com/muster-dev/muster"
)

// How a Record judges.
const (
	HalfLife     = muster.Duration(10 * time.Minute)
	MinPause     = muster.Duration(10 * time.Second)
	MaxPause     = muster.Duration(5 * time.Minute)
	limit        = 3   // failures from which on a worker is paused
	maxScore     = 6   // more are not counted
	healthyBelow = 0.5 // below this score all is forgotten
)

// Record is one worker's. The zero Record is that of a healthy one. Times must not go
// backwards between calls.
type Record struct {
	score   float64
	at      muster.Time // when score was right
	pauses  int         // since the worker was last healthy
	until   muster.Time // the end of the last pause
	onTrial bool        // paused, or given one task at a time

	trial       muster.AttemptID // under way; the zero id for none
	trialAt     muster.Time
	failedAfter muster.Duration // how long the last failed attempt had been there
	lastLoss    muster.Time     // when attempts were last lost together with the worker

	lastFailed muster.AttemptID // the last one, and why
	reason     muster.Reason
}

// Failure is an attempt that failed through its worker's fault.
type Failure struct {
	Attempt  muster.AttemptID
	Assigned muster.Time
	Reason   muster.Reason
}

// RecordFailure notes a failure. Attempts that were lost together with the worker are one
// failure, however many they were.
func (r *Record) RecordFailure(now muster.Time, f Failure) {
	if f.Reason == muster.WorkerLost || f.Reason == muster.WorkerRestarted {
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
	case !r.onTrial && r.score >= limit:
		r.startPause(now)
	}
}

func (r *Record) startPause(now muster.Time) {
	d := MinPause
	for range r.pauses {
		d = min(2*d, MaxPause)
	}
	r.pauses++
	r.until, r.onTrial, r.trial = now.Add(d), true, muster.AttemptID{}
}

// RecordSuccess notes an attempt that ended well, or badly through its own fault.
func (r *Record) RecordSuccess(now muster.Time, a muster.AttemptID) {
	r.score, r.at = r.decayedScore(now)/2, now
	if r.onTrial && r.trial == a {
		r.onTrial, r.trial = false, muster.AttemptID{}
	}
	if !r.onTrial && r.score < healthyBelow {
		*r = Record{lastLoss: r.lastLoss}
	}
}

// RecordEnd notes an attempt whose end says nothing about the worker.
func (r *Record) RecordEnd(a muster.AttemptID) {
	if r.trial == a {
		r.trial = muster.AttemptID{}
	}
}

// RecordAssigned notes an attempt that the worker is given.
func (r *Record) RecordAssigned(now muster.Time, a muster.AttemptID) {
	if r.onTrial && r.until <= now && r.trial == (muster.AttemptID{}) {
		r.trial, r.trialAt = a, now
	}
}

// Advance notes the time: a pause may be over, a trial passed, or the failures long ago.
func (r *Record) Advance(now muster.Time) {
	if at := r.trialEnd(); at > 0 && at <= now {
		r.onTrial, r.trial = false, muster.AttemptID{}
	}
	if at := r.resetTime(); at > 0 && at <= now {
		*r = Record{lastLoss: r.lastLoss}
	}
}

// trialEnd returns when the trial under way will have lasted for clearly longer than the
// failures before it, or 0 if there is none.
func (r *Record) trialEnd() muster.Time {
	if r.trial == (muster.AttemptID{}) {
		return 0
	}
	return r.trialAt.Add(min(max(MinPause, 2*r.failedAfter), MaxPause))
}

// resetTime returns when the score will have decayed, or 0 if there is none.
func (r *Record) resetTime() muster.Time {
	if r.score == 0 {
		return 0
	}
	halvings := max(math.Log2(r.score/healthyBelow), 0)
	return max(r.at.Add(muster.Duration(halvings*float64(HalfLife))+muster.Duration(time.Millisecond)), r.until)
}

// NextChange returns when Pass will have something to note, or 0 for never.
func (r *Record) NextChange(now muster.Time) muster.Time {
	next := r.resetTime()
	for _, at := range []muster.Time{r.until, r.trialEnd()} {
		if at > now && at < next {
			next = at
		}
	}
	return next
}

// Suspect reports whether other workers that fit go first.
func (r *Record) Suspect() bool { return r.score > 0 }

// AvoidReason says why the worker is given nothing now, "" if it may be given a task.
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

// Summary returns what people see of the record, nil for a healthy worker.
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
	return r.score * math.Exp2(-float64(now.Sub(r.at))/float64(HalfLife))
}
