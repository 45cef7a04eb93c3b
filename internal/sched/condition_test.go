package sched_test

import (
	"strings"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sched"
)

func when(condition string) func(*muster.TaskSpec) {
	return func(t *muster.TaskSpec) { t.When = condition }
}

// TestWhen checks which of the stages that need a run after each of its outcomes. c needs b, which needs a.
func TestWhen(t *testing.T) {
	t.Parallel()
	const (
		runs = muster.Assigned
		skip = muster.Skipped
	)
	tests := []struct {
		name                               string
		outcome                            muster.Outcome
		code                               int
		plain, failed, always, expr, final muster.TaskState // of the stages; final needs plain and runs after failures before it
		job                                muster.JobState  // once all have ended
	}{
		{"succeeded", muster.AttemptSucceeded, 0, runs, skip, runs, runs, skip, muster.JobSucceeded},
		{"succeeded, the condition is false", muster.AttemptSucceeded, 7, runs, skip, runs, skip, skip, muster.JobSucceeded},
		{"failed", muster.AttemptFailed, 1, skip, runs, runs, skip, runs, muster.JobFailed},
		{"timed out", muster.AttemptTimedOut, 1, skip, runs, runs, skip, runs, muster.JobTimedOut},
		{"cancelled", muster.AttemptCancelled, 1, skip, skip, runs, skip, skip, muster.JobCancelled},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			d := newEnv(t)
			d.join("w", func(w *muster.Worker) { w.Resources.Slots = 10 })
			job := d.submit(stage("a"), stage("plain<a"), stage("failed<a", when(muster.WhenFailed)), stage("always<a", when(muster.WhenAlways)),
				stage("expr<a", when("${a.exit_code} < 5")), stage("final<plain", when(muster.WhenFailed)))
			for num := 1; num <= 5; num++ {
				d.wantTask(job, num, muster.Waiting, "")
			}
			d.finish(job, 0, test.outcome, withExitCode(test.code))
			if d.task(job, 1).State == runs {
				d.finish(job, 1, muster.AttemptSucceeded)
			}
			for i, want := range []muster.TaskState{test.failed, test.always, test.expr, test.final} {
				got := d.task(job, i+2)
				if got.State != want || want == skip && got.Reason == "" {
					t.Errorf("%s is %s (%s: %s), want %s", got.Name, got.State, got.Reason, got.Message, want)
				}
				if got.State == runs {
					d.finish(job, i+2, muster.AttemptSucceeded)
				}
			}
			if got := d.task(job, 1).State; (got == skip) != (test.plain == skip) || d.job(job) != test.job {
				t.Errorf("plain is %s, the job %s", got, d.job(job))
			}
		})
	}
}

func TestConditionWithoutAValueFails(t *testing.T) {
	t.Parallel()
	d := newEnv(t)
	d.join("w")
	job := d.submit(stage("a"), stage("b<a", when("${a.result.loss} < 1")), stage("c<b", when(muster.WhenFailed)))
	d.finish(job, 0, muster.AttemptSucceeded, result(`{"accuracy":1}`))
	d.wantTask(job, 1, muster.Failed, muster.BadReference)
	if got := d.task(job, 1).Message; !strings.Contains(got, `the result of task 1.0 has no "loss"`) {
		t.Errorf("message %q", got)
	}
	d.wantTask(job, 2, muster.Assigned, "")
}

// TestSkippedByAConditionIsDecidedAgain checks that a retry of what a stage needs evaluates its condition again.
func TestSkippedByAConditionIsDecidedAgain(t *testing.T) {
	t.Parallel()
	d := newEnv(t)
	d.join("w", func(w *muster.Worker) { w.Resources.Slots = 10 })
	job := d.submit(stage("a"), stage("b"), stage("c<a,b", when(muster.WhenFailed)))
	d.finish(job, 0, muster.AttemptSucceeded)
	d.finish(job, 1, muster.AttemptCancelled)
	d.wantTask(job, 2, muster.Skipped, muster.ConditionFalse)
	d.do(d.store.retry(job, []muster.Span{{First: 1, Last: 1}}))
	d.wantTask(job, 2, muster.Waiting, "")
	d.finish(job, 1, muster.AttemptFailed, withExitCode(1))
	d.wantTask(job, 2, muster.Assigned, "")
}

func TestJobsStopAfterFailures(t *testing.T) {
	t.Parallel()
	d := newEnv(t)
	d.join("w", func(w *muster.Worker) { w.Resources.Slots = 3 })
	priority, id := muster.DefaultPriority, d.s.NextJob()
	d.do(sched.Submit{ID: id, Spec: &muster.Spec{
		Name: "job", Project: "p", Priority: &priority, OnFailure: muster.OnFailureStop, MaxFailures: 1,
		Tasks: []muster.TaskSpec{stage("a*1000"), stage("b"), stage("clean<a", when(muster.WhenAlways))},
	}})
	d.start(id, 2)
	d.finish(id, 0, muster.AttemptFailed, withExitCode(1))
	d.wantTask(id, 1, muster.Assigned, "") // one may fail
	d.finish(id, 1, muster.AttemptFailed, withExitCode(1))
	for _, num := range []int{3, 4, 5, 999} {
		if got := d.task(id, num); !got.State.Final() && got.State != muster.Cancelling || got.Reason != muster.JobStopped {
			t.Errorf("task %d is %s (%s)", num, got.State, got.Reason)
		}
	}
	d.wantTask(id, 2, muster.Cancelling, muster.JobStopped)
	d.wantTask(id, 1000, muster.Cancelled, muster.JobStopped) // b
	if n := len(d.last.Rows.Tasks); n > 10 {
		t.Errorf("stopping wrote %d rows", n)
	}
	for num := 2; num < 5; num++ {
		if d.task(id, num).State == muster.Cancelling {
			d.finish(id, num, muster.AttemptCancelled)
			d.wantTask(id, num, muster.Cancelled, muster.JobStopped)
		}
	}
	clean := 1001
	d.wantTask(id, clean, muster.Assigned, "")
	d.finish(id, clean, muster.AttemptSucceeded)
	if d.job(id) != muster.JobFailed {
		t.Errorf("the job is %s", d.job(id))
	}
	// A retry of one task is not stopped by the earlier failures, and a new failure stops the rest again.
	d.do(d.store.retry(id, []muster.Span{{First: 2, Last: 3}}))
	d.wantTask(id, 2, muster.Assigned, "")
	d.finish(id, 2, muster.AttemptFailed, withExitCode(1))
	if got := d.task(id, 3); got.State != muster.Cancelling || got.Reason != muster.JobStopped {
		t.Errorf("task 3 is %s (%s)", got.State, got.Reason)
	}
}
