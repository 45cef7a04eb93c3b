package retry

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-dev/muster"
)

var outcomes = []muster.Outcome{
	muster.AttemptSucceeded, muster.AttemptFailed, muster.AttemptTimedOut, muster.AttemptCancelled, muster.AttemptRejected, muster.AttemptLost,
}

// TestEveryDecisionIsALegalTransition draws any ending of any held task.
func TestEveryDecisionIsALegalTransition(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		code := rapid.IntRange(0, 3).Draw(t, "code")
		task := muster.Task{
			ID: muster.TaskID{Job: muster.JobID(rapid.IntRange(1, 99).Draw(t, "job"))}, Attempt: rapid.IntRange(1, 40).Draw(t, "attempt"),
			State:   rapid.SampledFrom([]muster.TaskState{muster.Assigned, muster.Running, muster.Cancelling}).Draw(t, "state"),
			Retries: rapid.IntRange(0, 40).Draw(t, "retried"), Crashes: rapid.IntRange(0, 6).Draw(t, "crashes"), ExitCode: &code,
		}
		spec := muster.TaskSpec{Retries: muster.Retries{
			Max:        rapid.IntRange(0, 50).Draw(t, "max"),
			Backoff:    muster.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "backoff")),
			MaxBackoff: muster.Duration(rapid.Int64Range(0, int64(2*time.Hour)).Draw(t, "most")),
			On:         rapid.SampledFrom([][]string{nil, {"exit:1"}, {"timeout", "signal"}}).Draw(t, "on"),
		}}
		e := End{
			Outcome: rapid.SampledFrom(outcomes).Draw(t, "outcome"), Reason: rapid.SampledFrom(muster.Reasons).Draw(t, "reason"),
			Uncounted: rapid.Bool().Draw(t, "free"), NoRetry: rapid.Bool().Draw(t, "final"),
		}
		v := Decide(&task, &spec, e, 5)
		switch {
		case !task.State.CanBecome(v.State):
			t.Fatalf("%s cannot become %s", task.State, v.State)
		case task.State == muster.Cancelling && !v.State.Final():
			t.Fatal("a cancelled task is retried")
		case v.State == muster.Queued && task.Retries+v.Retried > spec.Retries.Max && v.Retried > 0:
			t.Fatal("more retries than the spec allows")
		case v.State == muster.Queued && task.Crashes+v.Crashes > 5 && v.Crashes > 0:
			t.Fatal("more crashes than the limit")
		case v.State.Final() && v.Backoff != 0:
			t.Fatal("an ended task has a pause")
		case v.Backoff < 0:
			t.Fatalf("a pause of %s", v.Backoff)
		}
		most := spec.Retries.MaxBackoff
		if most == 0 {
			most = muster.Duration(10 * time.Minute)
		}
		if v.Backoff > most*11/10+muster.Duration(time.Millisecond) {
			t.Fatalf("a pause of %s, at most %s is allowed", v.Backoff, most)
		}
		if again := Decide(&task, &spec, e, 5); again != v {
			t.Fatalf("the same ending was judged %+v and %+v", v, again)
		}
	})
}

func TestBackoffHasJitter(t *testing.T) {
	t.Parallel()
	spec := muster.TaskSpec{Retries: muster.Retries{Max: 1, Backoff: muster.Duration(100 * time.Second)}}
	pauses := map[muster.Duration]bool{}
	var sum muster.Duration
	for i := range 1000 {
		task := muster.Task{ID: muster.TaskID{Job: 1, Num: i}, Attempt: 1, State: muster.Running}
		p := Decide(&task, &spec, End{Outcome: muster.AttemptFailed, Reason: muster.ExitCode}, 5).Backoff
		pauses[p] = true
		sum += p
	}
	if mean := sum / 1000; len(pauses) < 900 || mean < muster.Duration(99*time.Second) || mean > muster.Duration(101*time.Second) {
		t.Fatalf("%d different pauses, %s on average", len(pauses), mean)
	}
}

func TestPreemptionIsFreeAndFaultyDeviceCountsAsCrash(t *testing.T) {
	t.Parallel()
	task := muster.Task{ID: muster.TaskID{Job: 1}, Attempt: 3, State: muster.Running, Crashes: 5}
	for _, outcome := range []muster.Outcome{muster.AttemptFailed, muster.AttemptCancelled, muster.AttemptLost} {
		for _, why := range []muster.Reason{muster.Preempted, muster.GangMember, muster.WorkerShutdown} {
			v := Decide(&task, &muster.TaskSpec{}, End{Outcome: outcome, Reason: why}, 5)
			if v.State != muster.Queued || v.Reason != why || v.Backoff+muster.Duration(v.Retried+v.Crashes) != 0 {
				t.Errorf("%s, %s: %+v", outcome, why, v)
			}
		}
	}
	fault := End{Outcome: muster.AttemptFailed, Reason: muster.GPUFault}
	if v := Decide(&task, &muster.TaskSpec{}, fault, 5); v.State != muster.Failed || v.Reason != muster.CrashLimit {
		t.Errorf("the sixth fault: %+v", v)
	}
	task.Crashes = 0
	if v := Decide(&task, &muster.TaskSpec{}, fault, 5); v.State != muster.Queued || v.Crashes != 1 || v.Retried != 0 {
		t.Errorf("the first fault: %+v", v)
	}
}
