package sched

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-dev/muster"
)

const (
	second = muster.Duration(time.Second)
	begin  = muster.Time(1_000_000)
)

func attempt(n int) muster.AttemptID {
	return muster.AttemptID{Task: muster.TaskID{Job: 1, Num: n}, N: 1}
}

func failure(n int, assigned muster.Time) healthFailure {
	return healthFailure{attempt: attempt(n), assigned: assigned, reason: muster.DiskFull}
}

// paused returns a record that was just paused, at begin.
func paused(t *testing.T) *healthRecord {
	t.Helper()
	r := &healthRecord{}
	for n := range 3 {
		if r.avoidReason(begin) != "" {
			t.Fatalf("closed after %d failures: %s", n, r.avoidReason(begin))
		}
		r.recordFailure(begin, failure(n, begin))
	}
	if want := "is avoided until " + begin.Add(minPause).String() + ", because attempts keep failing there (disk_full)"; r.avoidReason(begin) != want {
		t.Fatalf("closed for %q, want %q", r.avoidReason(begin), want)
	}
	return r
}

func TestPausesGrowWhileTrialsFail(t *testing.T) {
	t.Parallel()
	r, now := paused(t), begin
	for n, want := range []muster.Duration{10, 20, 40, 80, 160, 300, 300} {
		end := now.Add(want * second)
		if got := r.nextChange(now); got != end {
			t.Fatalf("pause %d ends after %s, want %s", n, got.Sub(now), want*second)
		}
		if r.advance(end - 1); r.avoidReason(end-1) == "" {
			t.Fatalf("pause %d is over too early", n)
		}
		now = end
		if r.advance(now); r.avoidReason(now) != "" || !r.suspect() {
			t.Fatalf("after pause %d: closed for %q, suspect %t", n, r.avoidReason(now), r.suspect())
		}
		r.recordAssigned(now, attempt(100+n))
		if !strings.Contains(r.avoidReason(now), "is on trial with task 1.10") {
			t.Fatalf("a second task is allowed during the trial: %q", r.avoidReason(now))
		}
		r.recordFailure(now, failure(50, begin)) // assigned before the pause: it does not count
		r.recordFailure(now, failure(100+n, now))
	}
}

func TestSuccessfulTrialRestoresTheWorker(t *testing.T) {
	t.Parallel()
	r := paused(t)
	now := begin.Add(minPause)
	r.advance(now)
	r.recordAssigned(now, attempt(9))
	r.recordEnd(attempt(9)) // it was cancelled
	r.recordAssigned(now, attempt(10))
	r.recordSuccess(now, attempt(3)) // of before
	if r.avoidReason(now) == "" {
		t.Fatal("the end of another attempt ended the trial")
	}
	r.recordSuccess(now, attempt(10))
	if r.avoidReason(now) != "" || !r.suspect() {
		t.Fatalf("closed for %q, suspect %t", r.avoidReason(now), r.suspect())
	}
	r.recordSuccess(now, attempt(11))
	if r.suspect() || r.summary(now) != nil || r.nextChange(now) != 0 {
		t.Fatalf("failures are not forgotten after successes: %+v", r.summary(now))
	}
}

// A long task does not block the worker: once it has lasted clearly longer than the failed
// ones, the trial is passed.
func TestLongTrialCountsAsSuccess(t *testing.T) {
	t.Parallel()
	r := &healthRecord{}
	now := begin.Add(20 * second)
	for n := range 3 {
		r.recordFailure(now, failure(n, begin)) // each failed after 20 seconds
	}
	now = now.Add(minPause)
	r.advance(now)
	r.recordAssigned(now, attempt(9))
	if got := r.nextChange(now); got != now.Add(40*second) {
		t.Fatalf("the trial is passed after %s", got.Sub(now))
	}
	now = now.Add(40 * second)
	if r.advance(now); r.avoidReason(now) != "" {
		t.Fatal(r.avoidReason(now))
	}
	r.recordFailure(now, failure(9, begin))
	if got := r.nextChange(now); got != now.Add(20*second) {
		t.Fatalf("the next pause takes %s, want 20s", got.Sub(now))
	}
}

func TestAttemptsLostTogetherAreOneFailure(t *testing.T) {
	t.Parallel()
	r := &healthRecord{}
	for n := range 16 {
		r.recordFailure(begin, healthFailure{attempt: attempt(n), assigned: begin - 1000, reason: muster.WorkerRestarted})
	}
	if h := r.summary(begin); r.avoidReason(begin) != "" || h == nil || h.Score != 0.5 || h.Reason != muster.WorkerRestarted {
		t.Fatalf("avoided because of %q, shown as %+v", r.avoidReason(begin), h)
	}
}

func TestTheScoreDecays(t *testing.T) {
	t.Parallel()
	r := &healthRecord{}
	r.recordFailure(begin, failure(1, begin))
	half := begin.Add(halfLife / 2)
	if got := r.summary(half).Score; got != 0.61 {
		t.Errorf("the score is %g after half a half-life", got)
	}
	end := r.nextChange(begin)
	if d := end.Sub(begin) - halfLife; d < 0 || d > second {
		t.Errorf("a failure is forgotten after %s", end.Sub(begin))
	}
	if r.advance(end); r.suspect() || r.nextChange(end) != 0 {
		t.Error("it is not forgotten")
	}
}

// TestWorkersAreNeverExcludedForever checks that a worker is closed for no longer than MaxPause,
// whatever happens, and that a healthy worker's record becomes empty.
func TestWorkersAreNeverExcludedForever(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r, now, since := &healthRecord{}, begin, muster.Time(0)
		var held []healthFailure
		check := func() {
			closed := r.avoidReason(now) != ""
			if closed && since == 0 {
				since = now
			}
			if !closed {
				since = 0
			}
			if closed && now.Sub(since) > maxPause+second {
				t.Fatalf("closed since %s: %s", now.Sub(since), r.avoidReason(now))
			}
			if next := r.nextChange(now); next != 0 && next <= now {
				t.Fatalf("it is %s, and something was due %s ago", now, now.Sub(next))
			}
		}
		for n := range rapid.IntRange(1, 100).Draw(t, "steps") {
			end := now.Add(muster.Duration(rapid.IntRange(0, 200).Draw(t, "seconds")) * second)
			for at := r.nextChange(now); at != 0 && at <= end; at = r.nextChange(now) {
				now = at
				r.advance(now)
				check()
			}
			now = end
			if r.avoidReason(now) == "" {
				held = append(held, failure(n, now))
				r.recordAssigned(now, attempt(n))
				check()
			}
			if len(held) == 0 {
				continue
			}
			i := rapid.IntRange(0, len(held)-1).Draw(t, "which")
			switch rapid.IntRange(0, 3).Draw(t, "end") {
			case 0, 1:
				r.recordFailure(now, held[i])
				since = 0 // a pause may begin again with it
			case 2:
				r.recordSuccess(now, held[i].attempt)
			case 3:
				r.recordEnd(held[i].attempt)
			}
			held = append(held[:i], held[i+1:]...)
			check()
		}
		for at := r.nextChange(now); at != 0; at = r.nextChange(now) {
			if now = at; now.Sub(begin) > muster.Duration(24*time.Hour) {
				t.Fatal("failures are remembered for more than a day")
			}
			r.advance(now)
		}
		if r.suspect() {
			t.Fatal("the file remains suspect")
		}
	})
}
