package sched_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sched"
)

func result(text string) func(*muster.Report) {
	return func(r *muster.Report) { r.Result = json.RawMessage(text) }
}

func TestStagesRunInOrder(t *testing.T) {
	t.Parallel()
	d := newEnv(t)
	d.join("w", func(w *muster.Worker) { w.Resources.Slots = 10 })
	job := d.submit(stage("prepare"), stage("train*2<prepare"), stage("report<train,prepare"))
	d.wantTask(job, 1, muster.Waiting, "")
	d.finish(job, 0, muster.AttemptSucceeded)
	d.wantTask(job, 1, muster.Assigned, "")
	d.wantTask(job, 3, muster.Waiting, "")
	d.finish(job, 1, muster.AttemptSucceeded)
	x, err := d.s.Explain(d.now, muster.TaskID{Job: job, Num: 3})
	if err != nil || len(x.Waiting) != 1 || x.Waiting[0] != "train" {
		t.Fatalf("%+v, %v", x, err)
	}
	d.finish(job, 2, muster.AttemptSucceeded)
	d.finish(job, 3, muster.AttemptSucceeded)
	if d.job(job) != muster.JobSucceeded {
		t.Fatalf("the job is %s", d.job(job))
	}
}

func TestStageAfterAFailureIsSkippedAndRetriedWithIt(t *testing.T) {
	t.Parallel()
	d := newEnv(t)
	d.join("w")
	job := d.submit(stage("a*2"), stage("b*1000<a"), stage("c<b"))
	d.finish(job, 0, muster.AttemptSucceeded)
	d.finish(job, 1, muster.AttemptFailed, withExitCode(2))
	d.wantTask(job, 2, muster.Skipped, muster.NeedNotMet)
	d.wantTask(job, 1002, muster.Skipped, muster.NeedNotMet)
	if got := d.task(job, 2).Message; !strings.Contains(got, `"a"`) {
		t.Fatalf("message %q does not name the stage", got)
	}
	if d.job(job) != muster.JobFailed || d.s.Live(job) {
		t.Fatalf("the job is %s", d.job(job))
	}
	d.refuse(muster.Conflict, d.store.retry(job, []muster.Span{{First: 2, Last: 2}})) // its need stays failed
	d.refuse(muster.Conflict, d.store.retry(job, []muster.Span{{First: 0, Last: 0}})) // it succeeded
	d.do(d.store.retry(job, []muster.Span{{First: 1, Last: 1}}))
	d.wantTask(job, 1, muster.Assigned, "")
	d.wantTask(job, 2, muster.Waiting, "")
	if got := d.task(job, 1); got.Attempt != 2 || d.job(job) != muster.JobRunning || d.store.jobs[job].FinishedAt != 0 {
		t.Fatalf("attempt %d, the job: %+v", got.Attempt, d.store.jobs[job])
	}
	d.finish(job, 1, muster.AttemptSucceeded)
	d.wantTask(job, 2, muster.Assigned, "")
	d.wantTask(job, 1002, muster.Waiting, "")
}

func TestRetryOfACancelledArrayIsOneStep(t *testing.T) {
	t.Parallel()
	d := newEnv(t)
	job := d.submit(stage("a*1000000"))
	d.do(sched.Cancel{Job: job, Tasks: []muster.Span{{First: 10, Last: 12}}})
	d.do(sched.Cancel{Job: job})
	ev := sched.Retry{Job: d.store.jobs[job], Groups: d.store.groupsOf(job), Unmaterialized: true}
	ev.Ended = append(ev.Ended, d.store.rows(job)...)
	d.do(ev)
	if g := d.store.groups[job][0]; g.Counts[muster.Queued] != 1_000_000 || len(d.last.Rows.Tasks) != 3 {
		t.Fatalf("counts %v, %d task rows", g.Counts, len(d.last.Rows.Tasks))
	}
	if at := d.store.jobs[job].RetriedAt; at != d.now {
		t.Errorf("retried at %v, and it is %v", at, d.now)
	}
}

func TestResultsReachTheNextStage(t *testing.T) {
	t.Parallel()
	d := newEnv(t)
	d.join("w")
	job := d.submit(stage("train"), stage("eval<train", func(s *muster.TaskSpec) {
		s.Env = map[string]string{"BASE": "${train.result.accuracy}"}
		s.Inputs = []muster.Input{{From: "train", Name: "model.pt"}}
	}))
	d.finish(job, 0, muster.AttemptSucceeded, result(`{"accuracy":0.97}`), func(r *muster.Report) {
		r.Artifacts = []muster.Artifact{{Name: "model.pt", Size: 7, SHA256: "abc"}}
	})
	a, ok := d.commands[0].(sched.Assign)
	if !ok || a.Spec.Env["BASE"] != "0.97" || len(a.Inputs) != 1 || a.Inputs[0] != (muster.InputFile{Path: "model.pt", SHA256: "abc", Size: 7}) {
		t.Fatalf("assigned %+v", d.commands)
	}
	// After a restart the inputs are known from the rows alone.
	s, err := sched.Rebuild(sched.Config{}, d.now, d.store.snapshot())
	if err != nil {
		t.Fatal(err)
	}
	apply(t, s, d.now, sched.Joined{Worker: offer("w")}) // without the attempt: it is offered again
	s.Place(d.now)
	if again := assigned(s.Flush()); len(again) != 1 || len(again[0].Inputs) != 1 || again[0].Spec.Env["BASE"] != "0.97" {
		t.Fatalf("assigned %+v", again)
	}
}

func TestMissingOutputFailsTheNextStage(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		change func(*muster.TaskSpec)
		reason muster.Reason
	}{
		{"result", func(s *muster.TaskSpec) { s.Env = map[string]string{"X": "${train.result.loss}"} }, muster.BadReference},
		{"artifact", func(s *muster.TaskSpec) { s.Inputs = []muster.Input{{From: "train", Name: "model.pt"}} }, muster.ArtifactMissing},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := newEnv(t)
			d.join("w")
			job := d.submit(stage("train"), stage("eval*5<train", c.change), stage("last<eval"))
			d.finish(job, 0, muster.AttemptSucceeded, result(`{}`))
			d.wantTask(job, 3, muster.Failed, c.reason)
			d.wantTask(job, 6, muster.Skipped, muster.NeedNotMet)
			if d.task(job, 3).Message == "" || d.job(job) != muster.JobFailed {
				t.Fatalf("message %q, the job is %s", d.task(job, 3).Message, d.job(job))
			}
		})
	}
}

func TestSpecsThatCannotBeScheduledAreRefused(t *testing.T) {
	t.Parallel()
	d := newEnv(t)
	for name, stages := range map[string][]muster.TaskSpec{
		"a cycle":       {stage("a<b"), stage("b<a")},
		"unknown needs": {stage("a<x")},
		"no stage":      nil,
		"too many":      {stage("a*6000000"), stage("b*6000000")},
	} {
		err := d.s.Apply(d.now, sched.Submit{ID: d.s.NextJob(), Spec: &muster.Spec{Tasks: stages}})
		if muster.CodeOf(err) != muster.InvalidSpec {
			t.Errorf("%s: %v", name, err)
		}
	}
	if fx := d.s.Flush(); d.s.NextJob() != 1 || !fx.Rows.Empty() || len(fx.Events) > 0 {
		t.Errorf("a refused submission changed the state: %+v", fx)
	}
}

func TestCancel(t *testing.T) {
	t.Parallel()
	d := newEnv(t)
	w := d.join("w")
	job := d.submit(stage("a*6", func(s *muster.TaskSpec) { s.Kill.Grace = 5 * second }))
	d.start(job, 0)
	d.do(sched.Cancel{Job: job, Tasks: []muster.Span{{First: 0, Last: 1}, {First: 3, Last: 4}}})
	d.wantSent("stop w 1.0#1 cancelled", "stop w 1.1#1 cancelled")
	d.wantTask(job, 0, muster.Cancelling, muster.CancelledByUser)
	d.wantTask(job, 2, muster.Queued, "")
	d.wantTask(job, 3, muster.Cancelled, muster.CancelledByUser)
	d.refuse(muster.Conflict, sched.Cancel{Job: job, Tasks: []muster.Span{{First: 0, Last: 1}}})
	d.refuse(muster.NotFound, sched.Cancel{Job: job, Tasks: []muster.Span{{First: 5, Last: 6}}})
	d.refuse(muster.NotFound, sched.Cancel{Job: 99})
	d.finish(job, 0, muster.AttemptCancelled)
	d.wantSent("assign w 1.2#1")
	d.finish(job, 2, muster.AttemptSucceeded)
	d.wantSent("assign w 1.5#1") // 3 and 4 are passed over
	a := d.attempt(job, 1)
	d.now += 20_000
	d.do(sched.Renewed{Worker: w, Held: []muster.AttemptID{a, d.attempt(job, 5)}})
	d.advance(14 * second)
	d.wantTask(job, 1, muster.Cancelling, muster.CancelledByUser)
	d.advance(second)
	d.wantTask(job, 1, muster.Cancelled, muster.CancelledByUser)
	d.wantSent("stop w 1.1#1 lost")
	d.refuse(muster.Conflict, sched.Finished{Worker: w, Report: muster.Report{Attempt: a, Outcome: muster.AttemptCancelled}})
	d.finish(job, 5, muster.AttemptSucceeded)
	if d.job(job) != muster.JobCancelled {
		t.Fatalf("the job is %s", d.job(job))
	}
	d.refuse(muster.Conflict, sched.Cancel{Job: job})
}

func TestTaskThatSucceedsWhileItIsCancelledHasSucceeded(t *testing.T) {
	t.Parallel()
	d := newEnv(t)
	d.join("w")
	job := d.submit(stage("a"))
	d.do(sched.Cancel{Job: job})
	d.finish(job, 0, muster.AttemptSucceeded)
	d.wantTask(job, 0, muster.Succeeded, "")
}

func TestCancelWhileTheWorkerIsUnreachable(t *testing.T) {
	t.Parallel()
	d := newEnv(t)
	w := d.join("w")
	job := d.submit(stage("a"))
	a := d.attempt(job, 0)
	d.do(sched.Disconnected{Worker: w})
	d.do(sched.Cancel{Job: job})
	d.wantSent()
	d.do(sched.Joined{Worker: offer("w"), Held: []muster.AttemptID{a}})
	d.wantSent("stop w 1.0#1 cancelled")
}

// TestArraysRunAsManyTasksAsTheirLimit checks that a limited array leaves the rest of the fleet to others, and continues when one of its tasks ends.
func TestArraysRunAsManyTasksAsTheirLimit(t *testing.T) {
	t.Parallel()
	d := newEnv(t)
	d.join("w", func(w *muster.Worker) { w.Resources.Slots, w.Resources.CPUs = 10, 100 })
	job := d.submit(stage("a*1000", func(s *muster.TaskSpec) { s.Array.Limit = 3 }))
	other := d.submit(stage("b*2"))
	for num, want := range map[int]muster.TaskState{0: muster.Assigned, 2: muster.Assigned, 3: muster.Queued} {
		d.wantTask(job, num, want, "")
	}
	d.wantTask(other, 1, muster.Assigned, "")
	x, err := d.s.Explain(d.now, muster.TaskID{Job: job, Num: 3})
	if err != nil || !strings.Contains(x.Summary, "3 tasks of its stage") {
		t.Errorf("explained as %+v, %v", x, err)
	}
	d.finish(job, 1, muster.AttemptSucceeded)
	d.wantTask(job, 3, muster.Assigned, "")
	d.wantTask(job, 4, muster.Queued, "")
	d.finish(job, 0, muster.AttemptFailed, withExitCode(1))
	d.wantTask(job, 4, muster.Assigned, "")
	d.do(d.store.retry(job, []muster.Span{{First: 0, Last: 0}}))
	d.wantTask(job, 0, muster.Queued, "")
	d.finish(job, 2, muster.AttemptSucceeded)
	d.wantTask(job, 0, muster.Assigned, "") // a retried task comes first
	d.wantTask(job, 5, muster.Queued, "")
}
