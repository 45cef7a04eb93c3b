package health

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

func failure(n int, assigned muster.Time) Failure {
	return Failure{Attempt: attempt(n), Assigned: assigned, Reason: muster.DiskFull}
}

// paused returns a record that was just paused, at begin.
func paused(t *testing.T) *Record {
	t.Helper()
	r := &Record{}
	for n := range 3 {
		if r.AvoidReason(begin) != "" {
			t.Fatalf("closed after %d failures: %s", n, r.AvoidReason(begin))
		}
		r.RecordFailure(begin, failure(n, begin))
	}
	if want := "is avoided until " + begin.Add(minPause).String() + ", because attempts keep failing there (disk_full)"; r.AvoidReason(begin) != want {
		t.Fatalf("closed for %q, want %q", r.AvoidReason(begin), want)
	}
	return r
}

func TestPausesGrowWhileTrialsFail(t *testing.T) {
	t.Parallel()
	r, now := paused(t), begin
	for n, want := range []muster.Duration{10, 20, 40, 80, 160, 300, 300} {
		end := now.Add(want * second)
		if got := r.NextChange(now); got != end {
			t.Fatalf("pause %d ends after %s, want %s", n, got.Sub(now), want*second)
		}
		if r.Advance(end - 1); r.AvoidReason(end-1) == "" {
			t.Fatalf("pause %d is over too early", n)
		}
		now = end
		if r.Advance(now); r.AvoidReason(now) != "" || !r.Suspect() {
			t.Fatalf("after pause %d: closed for %q, suspect %t", n, r.AvoidReason(now), r.Suspect())
		}
		r.RecordAssigned(now, attempt(100+n))
		if !strings.Contains(r.AvoidReason(now), "is on trial with task 1.10") {
			t.Fatalf("a second task is allowed during the trial: %q", r.AvoidReason(now))
		}
		r.RecordFailure(now, failure(50, begin)) // assigned before the pause: it does not count
		r.RecordFailure(now, failure(100+n, now))
	}
}

func TestSuccessfulTrialRestoresTheWorker(t *testing.T) {
	t.Parallel()
	r := paused(t)
	now := begin.Add(minPause)
	r.Advance(now)
	r.RecordAssigned(now, attempt(9))
	r.RecordEnd(attempt(9)) // it was cancelled
	r.RecordAssigned(now, attempt(10))
	r.RecordSuccess(now, attempt(3)) // of before
	if r.AvoidReason(now) == "" {
		t.Fatal("the end of another attempt ended the trial")
	}
	r.RecordSuccess(now, attempt(10))
	if r.AvoidReason(now) != "" || !r.Suspect() {
		t.Fatalf("closed for %q, suspect %t", r.AvoidReason(now), r.Suspect())
	}
	r.RecordSuccess(now, attempt(11))
	if r.Suspect() || r.Summary(now) != nil || r.NextChange(now) != 0 {
		t.Fatalf("failures are not forgotten after successes: %+v", r.Summary(now))
	}
}

// A long task does not block the worker: once it has lasted clearly longer than the failed
// ones, the trial is passed.
func TestLongTrialCountsAsSuccess(t *testing.T) {
	t.Parallel()
	r := &Record{}
	now := begin.Add(20 * second)
	for n := range 3 {
		r.RecordFailure(now, failure(n, begin)) // each failed after 20 seconds
	}
	now = now.Add(minPause)
	r.Advance(now)
	r.RecordAssigned(now, attempt(9))
	if got := r.NextChange(now); got != now.Add(40*second) {
		t.Fatalf("the trial is passed after %s", got.Sub(now))
	}
	now = now.Add(40 * second)
	if r.Advance(now); r.AvoidReason(now) != "" {
		t.Fatal(r.AvoidReason(now))
	}
	r.RecordFailure(now, failure(9, begin))
	if got := r.NextChange(now); got != now.Add(20*second) {
		t.Fatalf("the next pause takes %s, want 20s", got.Sub(now))
	}
}

func TestAttemptsLostTogetherAreOneFailure(t *testing.T) {
	t.Parallel()
	r := &Record{}
	for n := range 16 {
		r.RecordFailure(begin, Failure{Attempt: attempt(n), Assigned: begin - 1000, Reason: muster.WorkerRestarted})
	}
	if h := r.Summary(begin); r.AvoidReason(begin) != "" || h == nil || h.Score != 0.5 || h.Reason != muster.WorkerRestarted {
		t.Fatalf("avoided because of %q, shown as %+v", r.AvoidReason(begin), h)
	}
}

func TestTheScoreDecays(t *testing.T) {
	t.Parallel()
	r := &Record{}
	r.RecordFailure(begin, failure(1, begin))
	half := begin.Add(halfLife / 2)
	if got := r.Summary(half).Score; got != 0.61 {
		t.Errorf("the score is %g after half a half-life", got)
	}
	end := r.NextChange(begin)
	if d := end.Sub(begin) - halfLife; d < 0 || d > second {
		t.Errorf("a failure is forgotten after %s", end.Sub(begin))
	}
	if r.Advance(end); r.Suspect() || r.NextChange(end) != 0 {
		t.Error("it is not forgotten")
	}
}

// TestWorkersAreNeverExcludedForever checks that a worker is closed for no longer than MaxPause,
// whatever happens, and that a healthy worker's record becomes empty.
func TestWorkersAreNeverExcludedForever(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r, now, since := &Record{}, begin, muster.Time(0)
		var held []Failure
		check := func() {
			closed := r.AvoidReason(now) != ""
			if closed && since == 0 {
				since = now
			}
			if !closed {
				since = 0
			}
			if closed && now.Sub(since) > maxPause+second {
				t.Fatalf("closed since %s: %s", now.Sub(since), r.AvoidReason(now))
			}
			if next := r.NextChange(now); next != 0 && next <= now {
				t.Fatalf("it is %s, and something was due %s ago", now, now.Sub(next))
			}
		}
		for n := range rapid.IntRange(1, 100).Draw(t, "steps") {
			end := now.Add(muster.Duration(rapid.IntRange(0, 200).Draw(t, "seconds")) * second)
			for at := r.NextChange(now); at != 0 && at <= end; at = r.NextChange(now) {
				now = at
				r.Advance(now)
				check()
			}
			now = end
			if r.AvoidReason(now) == "" {
				held = append(held, failure(n, now))
				r.RecordAssigned(now, attempt(n))
				check()
			}
			if len(held) == 0 {
				continue
			}
			i := rapid.IntRange(0, len(held)-1).Draw(t, "which")
			switch rapid.IntRange(0, 3).Draw(t, "end") {
			case 0, 1:
				r.RecordFailure(now, held[i])
				since = 0 // a pause may begin again with it
			case 2:
				r.RecordSuccess(now, held[i].Attempt)
			case 3:
				r.RecordEnd(held[i].Attempt)
			}
			held = append(held[:i], held[i+1:]...)
			check()
		}
		for at := r.NextChange(now); at != 0; at = r.NextChange(now) {
			if now = at; now.Sub(begin) > muster.Duration(24*time.Hour) {
				t.Fatal("failures are remembered for more than a day")
			}
			r.Advance(now)
		}
		if r.Suspect() {
			t.Fatal("the file remains suspect")
		}
	})
}
