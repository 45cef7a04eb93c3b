package cron

import (
	"slices"
	"time"

	"github.com/muster-dev/muster"
)

// Missed is what happens to runs whose time has passed while the server was not running.
type Missed string

// The values of Missed.
const (
	MissedSkip    Missed = "skip"     // they are not started
	MissedRunOnce Missed = "run-once" // the last one is started
	MissedRunAll  Missed = "run-all"  // the last MaxCatchUp ones are started
)

// Overlap is what happens at the time of a run if earlier jobs of the schedule have not ended.
type Overlap string

// The values of Overlap.
const (
	OverlapAllow   Overlap = "allow"   // the run is started beside them
	OverlapForbid  Overlap = "forbid"  // the run is skipped
	OverlapReplace Overlap = "replace" // they are cancelled, and the run is started
)

const (
	// Grace is how late a run may start without being missed: the time of a restart of the server.
	Grace = 5 * time.Minute
	// MaxCatchUp is the maximum number of missed runs that MissedRunAll starts.
	MaxCatchUp = 100
	// MaxActive is the maximum number of jobs of a schedule that have not ended. Further runs are skipped.
	MaxActive = 100
	// MaxSetBack is how far the clock may be set back without effect on the next run. If it is set back further, then it was wrong before, and
	// the schedule continues from the new time.
	MaxSetBack = 24 * time.Hour
	// maxCounted is how many missed runs are counted.
	maxCounted = 1000
)

// Plan is when and how a schedule starts runs.
type Plan struct {
	Expression

	Missed  Missed
	Overlap Overlap
}

// Validate returns an Invalid error for values that do not exist or do not go together.
func (p *Plan) Validate() error {
	switch {
	case !slices.Contains([]Missed{MissedSkip, MissedRunOnce, MissedRunAll}, p.Missed):
		return muster.Errorf(muster.Invalid, "unknown policy %q for missed runs: use skip, run-once or run-all", muster.Truncate(string(p.Missed)))
	case !slices.Contains([]Overlap{OverlapAllow, OverlapForbid, OverlapReplace}, p.Overlap):
		return muster.Errorf(muster.Invalid, "unknown policy %q for overlapping runs: use allow, forbid or replace", muster.Truncate(string(p.Overlap)))
	case p.Missed == MissedRunAll && p.Overlap != OverlapAllow:
		return muster.Errorf(muster.Invalid, "missed runs cannot all be started if runs must not overlap: use allow for overlapping runs, or run-once for missed ones")
	}
	return nil
}

// Step is one step of a schedule. The zero value means that there is nothing to do.
type Step struct {
	Skip     int       // missed runs that are not started; more than maxCounted are not counted exactly
	LastSkip time.Time // the last one of them
	Start    time.Time // the run to start, or zero
	Next     time.Time // the next run to decide about after this step, or zero if there is none
}

// Step returns what to do at now if next is the first run that is not decided. It returns either runs to skip, or one run to start.
func (p *Plan) Step(next, now time.Time) Step {
	if next.IsZero() || next.After(now) {
		return Step{}
	}
	due, count := p.due(next, now)
	following := p.Next(now)
	last := due[len(due)-1]
	start := due[len(due)-1:]
	switch {
	case p.Missed == MissedRunAll:
		start = due[max(0, len(due)-MaxCatchUp):]
	case p.Missed == MissedSkip && now.Sub(last) > Grace:
		start = nil
	}
	if skip := count - len(start); skip > 0 {
		s := Step{Skip: skip, LastSkip: last, Next: following}
		if len(start) > 0 {
			s.LastSkip, s.Next = due[len(due)-len(start)-1], start[0]
		}
		return s
	}
	s := Step{Start: start[0], Next: following}
	if len(start) > 1 {
		s.Next = start[1]
	}
	return s
}

// due returns the last runs from next to now, at least MaxCatchUp + 1 of them if there are as many, and how many there are in all.
func (p *Plan) due(next, now time.Time) (due []time.Time, count int) {
	for t := next; !t.IsZero() && !t.After(now); t = p.Next(t) {
		if count++; count > maxCounted {
			break
		}
		due = append(due, t)
	}
	if count <= maxCounted {
		return due, count
	}
	for window := time.Hour; ; window *= 2 { // a long time has passed: only the last ones matter
		var late []time.Time
		for t := p.Next(now.Add(-window)); !t.IsZero() && !t.After(now); t = p.Next(t) {
			late = append(late, t)
		}
		if len(late) > MaxCatchUp {
			return late, count
		}
	}
}

// Reset reports whether the clock was set back so far that the next run must be computed again from now. last is the last run that was
// decided, or zero.
func Reset(last, now time.Time) bool { return last.Sub(now) > MaxSetBack }

// Action is what the overlap policy says about a run.
type Action int

// The actions.
const (
	Start   Action = iota
	Skip           // earlier jobs have not ended
	Replace        // cancel the earlier jobs, then start
)

// Decide returns what to do with a run while a number of earlier jobs of the schedule have not ended.
func (o Overlap) Decide(active int) Action {
	switch {
	case active > 0 && o == OverlapForbid:
		return Skip
	case active > 0 && o == OverlapReplace:
		return Replace
	case active >= MaxActive:
		return Skip
	default:
		return Start
	}
}
