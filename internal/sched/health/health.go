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
	HalfLife  = muster.Duration(10 * time.Minute)
	FirstWait = muster.Duration(10 * time.Second)
	MaxPause  = muster.Duration(5 * time.Minute)
	limit     = 3   // failures from which on a worker is paused
	maxScore  = 6   // more are not counted
	healthy   = 0.5 // below this score all is forgotten
)

// Record is one worker's. The zero Record is that of a healthy one. Times must not go
// backwards between calls.
type Record struct {
	score   float64
	at      muster.Time // when score was right
	pauses  int         // since the worker was last healthy
	until   muster.Time // the end of the last pause
	onTrial bool        // paused, or given one task at a time

	trial   muster.AttemptID // under way; the zero id for none
	trialAt muster.Time
	took    muster.Duration // how long the last failed attempt had been there
	lost    muster.Time     // when attempts were last lost together with the worker

	failed muster.AttemptID // the last one, and why
	reason muster.Reason
}

// Failure is an attempt that failed through its worker's fault.
type Failure struct {
	Attempt  muster.AttemptID
	Assigned muster.Time
	Reason   muster.Reason
}

// Failed notes a failure. Attempts that were lost together with the worker are one
// failure, however many they were.
func (r *Record) Failed(now muster.Time, f Failure) {
	if f.Reason == muster.WorkerLost || f.Reason == muster.WorkerRestarted {
		if r.lost > 0 && f.Assigned <= r.lost {
			return
		}
		r.lost = now
	}
	r.score, r.at = min(r.value(now)+1, maxScore), now
	r.failed, r.reason, r.took = f.Attempt, f.Reason, now.Sub(f.Assigned)
	switch {
	case r.trial == f.Attempt && r.onTrial:
		r.pause(now)
	case !r.onTrial && r.score >= limit:
		r.pause(now)
	}
}

func (r *Record) pause(now muster.Time) {
	d := FirstWait
	for range r.pauses {
		d = min(2*d, MaxPause)
	}
	r.pauses++
	r.until, r.onTrial, r.trial = now.Add(d), true, muster.AttemptID{}
}

// Succeeded notes an attempt that ended well, or badly through its own fault.
func (r *Record) Succeeded(now muster.Time, a muster.AttemptID) {
	r.score, r.at = r.value(now)/2, now
	if r.onTrial && r.trial == a {
		r.onTrial, r.trial = false, muster.AttemptID{}
	}
	if !r.onTrial && r.score < healthy {
		*r = Record{lost: r.lost}
	}
}

// Ended notes an attempt whose end says nothing about the worker.
func (r *Record) Ended(a muster.AttemptID) {
	if r.trial == a {
		r.trial = muster.AttemptID{}
	}
}

// Assigned notes an attempt that the worker is given.
func (r *Record) Assigned(now muster.Time, a muster.AttemptID) {
	if r.onTrial && r.until <= now && r.trial == (muster.AttemptID{}) {
		r.trial, r.trialAt = a, now
	}
}

// Pass notes the time: a pause may be over, a trial passed, or the failures long ago.
func (r *Record) Pass(now muster.Time) {
	if at := r.passes(); at > 0 && at <= now {
		r.onTrial, r.trial = false, muster.AttemptID{}
	}
	if at := r.forgets(); at > 0 && at <= now {
		*r = Record{lost: r.lost}
	}
}

// passes returns when the trial under way will have lasted for clearly longer than the
// failures before it, or 0 if there is none.
func (r *Record) passes() muster.Time {
	if r.trial == (muster.AttemptID{}) {
		return 0
	}
	return r.trialAt.Add(min(max(FirstWait, 2*r.took), MaxPause))
}

// forgets returns when the score will have decayed, or 0 if there is none.
func (r *Record) forgets() muster.Time {
	if r.score == 0 {
		return 0
	}
	halvings := max(math.Log2(r.score/healthy), 0)
	return max(r.at.Add(muster.Duration(halvings*float64(HalfLife))+muster.Duration(time.Millisecond)), r.until)
}

// Next returns when Pass will have something to note, or 0 for never.
func (r *Record) Next(now muster.Time) muster.Time {
	next := r.forgets()
	for _, at := range []muster.Time{r.until, r.passes()} {
		if at > now && at < next {
			next = at
		}
	}
	return next
}

// Suspect reports whether other workers that fit go first.
func (r *Record) Suspect() bool { return r.score > 0 }

// Closed says why the worker is given nothing now, "" if it may be given a task.
func (r *Record) Closed(now muster.Time) string {
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

// Shown returns what people see of the record, nil for a healthy worker.
func (r *Record) Shown(now muster.Time) *muster.WorkerHealth {
	if r.score == 0 {
		return nil
	}
	h := &muster.WorkerHealth{Score: math.Round(100*math.Exp2(-r.value(now))) / 100, Reason: r.reason, Attempt: r.failed, Avoided: r.Closed(now)}
	if r.until > now {
		h.Until = r.until
	}
	return h
}

// value returns the score as it has decayed by now.
func (r *Record) value(now muster.Time) float64 {
	if r.score == 0 {
		return 0
	}
	return r.score * math.Exp2(-float64(now.Sub(r.at))/float64(HalfLife))
}
