package sched_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sched"
)

func TestOneTaskFromQueuedToSucceeded(t *testing.T) {
	t.Parallel()
	d := newEnv(t)
	job := d.submit(stage("a"))
	d.wantTask(job, 0, muster.Queued, "")
	w := d.join("w")
	d.wantSent("assign w 1.0#1")
	d.wantTask(job, 0, muster.Assigned, "")
	d.do(sched.Accepted{Worker: w, Attempt: d.attempt(job, 0)})
	d.wantTask(job, 0, muster.Assigned, "")
	d.start(job, 0)
	d.wantTask(job, 0, muster.Running, "")
	d.now += 1000
	d.finish(job, 0, muster.AttemptSucceeded, withExitCode(0))
	d.wantTask(job, 0, muster.Succeeded, "")
	j := d.store.jobs[job]
	if j.State != muster.JobSucceeded || j.FinishedAt != d.now || j.StartedAt != d.now-1000 || *j.Progress != 1 || d.s.Live(job) {
		t.Fatalf("the job: %+v", j)
	}
}

// Artifacts that a task publishes while it runs are in its events, are kept if its attempt does not succeed, and are
// replaced by what a success reports.
func TestLiveFilesOfATask(t *testing.T) {
	t.Parallel()
	preview, curve, model := muster.Artifact{Name: "live/a.png", SHA256: "1"}, muster.Artifact{Name: "live/b.png", SHA256: "2"}, muster.Artifact{Name: "model"}
	with := func(list ...muster.Artifact) func(*muster.Report) {
		return func(r *muster.Report) { r.Artifacts = list }
	}
	later := curve
	later.SHA256 = "3"
	for _, c := range []struct {
		name string
		end  func(d *env, job muster.JobID)
		want []muster.Artifact
	}{
		{"it succeeded", func(d *env, job muster.JobID) { d.finish(job, 0, muster.AttemptSucceeded, with(model)) }, []muster.Artifact{model}},
		{"it failed", func(d *env, job muster.JobID) { d.finish(job, 0, muster.AttemptFailed, with(model, later)) }, []muster.Artifact{model, later, preview}},
		{"it was cancelled", func(d *env, job muster.JobID) { d.finish(job, 0, muster.AttemptCancelled) }, []muster.Artifact{preview, curve}},
		{"its worker came back without it", func(d *env, _ muster.JobID) { d.do(sched.Disconnected{Worker: "w"}, sched.Joined{Worker: offer("w")}) }, []muster.Artifact{preview, curve}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := newEnv(t)
			w := d.join("w")
			job := d.submit(stage("a"))
			d.start(job, 0)
			shows := func(list ...muster.Artifact) {
				d.do(sched.Progressed{Worker: w, Progress: muster.Progress{Attempt: d.attempt(job, 0), Artifacts: list}})
			}
			shows(preview)
			shows(preview, curve)
			d.do(sched.Progressed{Worker: w, Progress: muster.Progress{Attempt: d.attempt(job, 0), Step: new("on")}})
			if e := d.last.Events; len(e) != 1 || !slices.Equal(e[0].Detail.Artifacts, []muster.Artifact{preview, curve}) {
				t.Errorf("the event is %+v", e)
			}
			c.end(d, job)
			got := d.task(job, 0).Artifacts
			if past := d.last.Rows.Attempts; len(past) > 0 {
				got = past[0].Artifacts
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("at its end it has %v, want %v", got, c.want)
			}
		})
	}
}

func TestEachRowIsWrittenOnceInItsLatestState(t *testing.T) {
	t.Parallel()
	d := newEnv(t)
	w := d.join("w")
	job := d.submit(stage("a"))
	a := d.attempt(job, 0)
	d.do(sched.Started{Worker: w, Attempt: a, At: d.now}, sched.Finished{Worker: w, Report: muster.Report{Attempt: a, Outcome: muster.AttemptSucceeded}})
	if r := d.last.Rows; len(r.Tasks) != 1 || r.Tasks[0].State != muster.Succeeded || len(r.Jobs) != 1 || r.Jobs[0].Spec != nil || len(r.Groups) != 1 {
		t.Fatalf("rows: %+v", r)
	}
	var states []string
	for _, ev := range d.last.Events {
		states = append(states, ev.State)
	}
	if len(states) != 3 || states[0] != "running" || states[1] != "succeeded" || states[2] != "succeeded" {
		t.Fatalf("events: %v", states)
	}
	d.flush()
	if !d.last.Rows.Empty() || len(d.last.Events)+len(d.last.Commands) > 0 {
		t.Fatalf("rows were returned twice: %+v", d.last)
	}
}

func TestRetryPolicy(t *testing.T) {
	t.Parallel()
	policy := func(r muster.Retries) func(*muster.TaskSpec) {
		return func(s *muster.TaskSpec) { s.Retries = r }
	}
	for _, c := range []struct {
		name    string
		retries muster.Retries
		outcome muster.Outcome
		report  func(*muster.Report)
		state   muster.TaskState
		reason  muster.Reason
		retried int
		crashes int
	}{
		{"no retries", muster.Retries{}, muster.AttemptFailed, withExitCode(3), muster.Failed, muster.ExitCode, 0, 0},
		{"any failure", muster.Retries{Max: 1}, muster.AttemptFailed, withExitCode(3), muster.Queued, muster.ExitCode, 1, 0},
		{"a code that is listed", muster.Retries{Max: 1, On: []string{"exit:3"}}, muster.AttemptFailed, withExitCode(3), muster.Queued, muster.ExitCode, 1, 0},
		{"a code that is not", muster.Retries{Max: 1, On: []string{"exit:4"}}, muster.AttemptFailed, withExitCode(3), muster.Failed, muster.ExitCode, 0, 0},
		{"a reason that is listed", muster.Retries{Max: 1, On: []string{"out_of_memory"}}, muster.AttemptFailed, withReason(muster.OutOfMemory), muster.Queued, muster.OutOfMemory, 1, 0},
		{"a timeout that is listed", muster.Retries{Max: 1, On: []string{"timeout"}}, muster.AttemptTimedOut, withExitCode(0), muster.Queued, muster.Timeout, 1, 0},
		{"a timeout that is not", muster.Retries{Max: 1, On: []string{"signal"}}, muster.AttemptTimedOut, withExitCode(0), muster.TimedOut, muster.Timeout, 0, 0},
		{"the fleet's fault", muster.Retries{}, muster.AttemptFailed, withReason(muster.DiskFull), muster.Queued, muster.DiskFull, 0, 1},
		{"a worker that shuts down", muster.Retries{}, muster.AttemptCancelled, withReason(muster.WorkerShutdown), muster.Assigned, "", 0, 0},
		{"cancelled on the worker", muster.Retries{Max: 1}, muster.AttemptCancelled, withExitCode(0), muster.Cancelled, muster.CancelledByUser, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := newEnv(t)
			d.join("w")
			job := d.submit(stage("a", policy(c.retries)))
			d.finish(job, 0, c.outcome, c.report)
			d.wantTask(job, 0, c.state, c.reason)
			if got := d.task(job, 0); got.Retries != c.retried || got.Crashes != c.crashes {
				t.Fatalf("retried %d, crashes %d", got.Retries, got.Crashes)
			}
			if _, kept := d.store.attempts[muster.AttemptID{Task: muster.TaskID{Job: job}, N: 1}]; kept == c.state.Final() {
				t.Fatalf("the first attempt is in the history: %t", kept)
			}
		})
	}
}

func TestBackoffDoublesUpToItsMaximum(t *testing.T) {
	t.Parallel()
	d := newEnv(t)
	d.s = sched.New(sched.Config{HeartbeatTimeout: muster.Duration(time.Hour)})
	d.join("w")
	job := d.submit(stage("a", func(s *muster.TaskSpec) {
		s.Retries = muster.Retries{Max: 6, Backoff: 10 * second, MaxBackoff: 60 * second}
	}))
	for i, base := range []muster.Duration{10, 20, 40, 60, 60, 60} {
		d.finish(job, 0, muster.AttemptFailed, withExitCode(1))
		pause := d.task(job, 0).NotBefore.Sub(d.now)
		if low, high := base*second*9/10, base*second*11/10; pause < low || pause > high {
			t.Fatalf("pause %d is %s, want %d s within a tenth", i+1, pause, base)
		}
		x, err := d.s.Explain(d.now, muster.TaskID{Job: job})
		if err != nil || x.NotUntil != d.task(job, 0).NotBefore {
			t.Fatalf("explained as %+v, %v", x, err)
		}
		d.advance(pause - 1e6)
		d.wantTask(job, 0, muster.Queued, muster.ExitCode)
		d.advance(second)
		d.wantTask(job, 0, muster.Assigned, "")
	}
	d.finish(job, 0, muster.AttemptFailed, withExitCode(1))
	d.wantTask(job, 0, muster.Failed, muster.ExitCode)
}

func TestCrashLimitFailsATaskThatCrashesWorkers(t *testing.T) {
	t.Parallel()
	d := newEnv(t)
	job := d.submit(stage("a"))
	for range 6 {
		d.advance(60 * second)
		w := d.join("w")
		d.start(job, 0)
		d.do(sched.Disconnected{Worker: w}, sched.Joined{Worker: offer("w")}) // it came back with nothing
	}
	d.wantTask(job, 0, muster.Failed, muster.CrashLimit)
}

// A worker that shuts down returns its attempts, and one whose supervisor hung reports what it ended: both
// are retried at once, also if the connection ends right after.
func TestReturnedTasksAreRetriedAtOnce(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		reported muster.Reason
		then     string
		state    muster.TaskState
		reason   muster.Reason
		crashes  int
	}{
		{muster.WorkerShutdown, "", muster.Assigned, muster.NoReason, 0},
		{muster.WorkerLost, "", muster.Queued, muster.WorkerLost, 1},
		{muster.NoReason, "", muster.Queued, muster.WorkerLost, 1},
		{muster.ExitCode, "", muster.Queued, muster.WorkerLost, 1},
		{muster.WorkerShutdown, muster.DisconnectFail, muster.Assigned, muster.NoReason, 0},
		{muster.WorkerLost, muster.DisconnectFail, muster.Failed, muster.WorkerLost, 0},
	} {
		d := newEnv(t)
		w := d.join("w", slots(1))
		job := d.submit(stage("a", func(s *muster.TaskSpec) { s.Disconnect.Then = c.then }))
		d.start(job, 0)
		d.join("x", slots(1))
		d.do(sched.Ready{Worker: w, Constrained: "the worker is shutting down"})
		d.finish(job, 0, muster.AttemptLost, withReason(c.reported))
		got := d.task(job, 0)
		if got.State != c.state || got.Reason != c.reason || got.Crashes != c.crashes || c.state == muster.Assigned && got.Worker != "x" {
			t.Errorf("after %q, then %q: %s (%s) on %q with %d crashes", c.reported, c.then, got.State, got.Reason, got.Worker, got.Crashes)
		}
		d.do(sched.Disconnected{Worker: w})
		if d.advance(2 * second); c.state != muster.Failed && d.task(job, 0).Worker != "x" {
			t.Errorf("after %q the task is %s", c.reported, d.task(job, 0).State)
		}
	}
}

// A worker that is not ready gets no tasks, and gets those that it rejected for that reason as soon as it
// is ready.
func TestUnreadyWorkerGetsNoTasks(t *testing.T) {
	t.Parallel()
	d := newEnv(t)
	job := d.submit(stage("a"))
	d.do(sched.Joined{Worker: offer("w"), Constrained: "it probes its machine"})
	d.wantSent()
	x, err := d.s.Explain(d.now, muster.TaskID{Job: job})
	if err != nil || x.Workers[0].Why != "takes no tasks now: it probes its machine" {
		t.Fatalf("explained as %+v, %v", x, err)
	}
	d.do(sched.Ready{Worker: "w"})
	d.wantSent("assign w 1.0#1")
	d.do(sched.Ready{Worker: "w", Constrained: "hot"}, sched.Rejected{Worker: "w", Attempt: d.attempt(job, 0), Message: "hot", Constrained: true})
	d.wantTask(job, 0, muster.Queued, muster.Rejected)
	d.wantSent()
	d.now += 2000
	d.do(sched.Ready{Worker: "w"})
	d.wantSent("assign w 1.0#2")
	for n := 2; n < 14 && d.task(job, 0).NotBefore == 0; n++ { // it rejects every task
		d.do(sched.Rejected{Worker: "w", Attempt: d.attempt(job, 0), Message: "hot", Constrained: true})
	}
	if got := d.task(job, 0); got.Crashes != 1 || got.NotBefore == 0 {
		t.Fatalf("a worker that always rejects gets offers without a pause: %+v", got)
	}
}

func TestRejectedTaskIsPlacedOnAnotherWorker(t *testing.T) {
	t.Parallel()
	d := newEnv(t)
	d.join("w1")
	job := d.submit(stage("a"))
	reject := func() {
		d.do(sched.Rejected{Worker: d.task(job, 0).Worker, Attempt: d.attempt(job, 0), Message: "no room"})
	}
	reject()
	d.wantTask(job, 0, muster.Queued, muster.Rejected)
	if x, _ := d.s.Explain(d.now, muster.TaskID{Job: job}); x.Workers[0].Filter != "rejected" || !strings.Contains(x.Workers[0].Why, "a moment ago (no room), and is asked again at ") {
		t.Fatalf("explained as %+v", x)
	}
	d.join("w2")
	d.wantSent("assign w2 1.0#2")
	reject()
	d.advance(9 * second)
	d.wantSent()
	d.advance(second)
	d.wantSent("assign w1 1.0#3")
	for range 9 {
		reject()
		d.advance(10 * second)
	}
	if got := d.task(job, 0); got.Attempt != 12 || got.Crashes != 1 {
		t.Fatalf("after 11 rejections: attempt %d, %d crashes", got.Attempt, got.Crashes)
	}
}

// TestFinalRejectionIsNotRepeated rejects a task for good: the worker does not get it again soon, and another one at once.
func TestFinalRejectionIsNotRepeated(t *testing.T) {
	t.Parallel()
	d := newEnv(t)
	d.join("w1")
	job := d.submit(stage("a"))
	d.wantSent("assign w1 1.0#1")
	d.do(sched.Rejected{Worker: "w1", Attempt: d.attempt(job, 0), Message: "not signed", Final: true})
	d.advance(11 * second) // another rejection would end after 10 s
	d.wantSent()
	d.wantTask(job, 0, muster.Queued, muster.Rejected)
	d.join("w2")
	d.wantSent("assign w2 1.0#2")
}

// TestFailureOfAWorkerIsRetriedOnAnother has a worker that loses its container engine: other workers are tried first, although this one would
// be the best, and this one is used if there is no other.
func TestFailureOfAWorkerIsRetriedOnAnother(t *testing.T) {
	t.Parallel()
	for _, reason := range []muster.Reason{muster.EngineFailed, muster.ImagePull} {
		d := newEnv(t)
		d.join("w1", slots(8))
		job := d.submit(stage("a"))
		fail := func() {
			t.Helper()
			d.start(job, 0)
			d.do(sched.Finished{Worker: d.task(job, 0).Worker, Report: muster.Report{
				Attempt: d.attempt(job, 0), Outcome: muster.AttemptFailed, Reason: reason, Message: "the engine is gone", FinishedAt: d.now,
			}})
			d.wantTask(job, 0, muster.Queued, reason)
		}
		fail()
		d.advance(9 * second)
		x, err := d.s.Explain(d.now, muster.TaskID{Job: job})
		if err != nil || x.Workers[0].Filter != "failed" || !strings.Contains(x.Workers[0].Why, "failed it a moment ago (the engine is gone), and is asked again at ") {
			t.Fatalf("explained as %+v, %v", x, err)
		}
		if want := fmt.Sprintf("is tried again at %s: worker w1 failed it a moment ago (the engine is gone)", d.now.Add(second)); x.Summary != want {
			t.Fatalf("summary %q, want %q", x.Summary, want)
		}
		d.advance(second)
		d.wantSent("assign w1 1.0#2")
		d.join("w2", slots(1))
		fail()
		d.advance(3 * second)
		d.wantSent("assign w2 1.0#3")
		fail()
		d.advance(16 * second) // 19 s after it failed on w1 for the second time
		d.wantTask(job, 0, muster.Queued, reason)
		d.advance(second)
		if got := d.task(job, 0); got.Worker != "w1" || got.Attempt != 4 || got.Crashes != 3 {
			t.Fatalf("the fourth attempt: %+v", got)
		}
	}
}

func TestLeaseOfUnreachableWorker(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		then   string
		state  muster.TaskState
		reason muster.Reason
	}{{"", muster.Queued, muster.WorkerLost}, {muster.DisconnectFail, muster.Failed, muster.WorkerLost}} {
		t.Run("then "+c.then, func(t *testing.T) {
			t.Parallel()
			d := newEnv(t)
			w := d.join("w")
			job := d.submit(stage("a", func(s *muster.TaskSpec) { s.Disconnect = muster.Disconnect{Grace: 120 * second, Then: c.then} }))
			d.start(job, 0)
			a := d.attempt(job, 0)
			d.do(sched.Disconnected{Worker: w})
			if got := d.store.workers[w].State; got != muster.WorkerUnreachable {
				t.Fatalf("the worker is %s", got)
			}
			d.advance(119 * second)
			d.wantTask(job, 0, muster.Running, "")
			d.advance(second)
			d.wantTask(job, 0, c.state, c.reason)
			d.do(sched.Joined{Worker: offer("w"), Held: []muster.AttemptID{a}})
			if keep, stop := d.s.Reconcile(w, []muster.AttemptID{a}); len(keep) != 0 || len(stop) != 1 {
				t.Fatalf("keep %v, stop %v", keep, stop)
			}
			d.refuse(muster.Conflict, sched.Finished{Worker: w, Report: muster.Report{Attempt: a, Outcome: muster.AttemptSucceeded}})
			if len(d.store.late) != 1 {
				t.Fatalf("late: %v", d.store.late)
			}
		})
	}
}

func TestFrozenWorkerResumes(t *testing.T) {
	t.Parallel()
	d := newEnv(t)
	w := d.join("w")
	job := d.submit(stage("a", func(s *muster.TaskSpec) { s.Disconnect.Grace = 60 * second }))
	d.start(job, 0)
	a := d.attempt(job, 0)
	d.advance(30 * second)
	if got := d.store.workers[w].State; got != muster.WorkerUnreachable {
		t.Fatalf("after its silence the worker is %s", got)
	}
	d.advance(30 * second)
	d.wantTask(job, 0, muster.Queued, muster.WorkerLost)
	d.advance(5 * second)
	d.wantSent() // nothing is placed on it
	d.do(sched.Renewed{Worker: w, Held: []muster.AttemptID{a}})
	d.wantSent("stop w 1.0#1 lost", "assign w 1.0#2")
}

func TestWorkerReconnectsWithoutItsTask(t *testing.T) {
	t.Parallel()
	d := newEnv(t)
	w := d.join("w")
	job := d.submit(stage("a*2"))
	d.do(sched.Accepted{Worker: w, Attempt: d.attempt(job, 1)})
	d.do(sched.Disconnected{Worker: w})
	d.do(sched.Joined{Worker: offer("w")})
	d.wantTask(job, 0, muster.Assigned, "") // never accepted: queued and offered again, without blame
	d.wantTask(job, 1, muster.Queued, muster.WorkerRestarted)
	if a, b := d.task(job, 0), d.task(job, 1); a.Crashes != 0 || a.Attempt != 2 || b.Crashes != 1 {
		t.Fatalf("crashes %d and %d", a.Crashes, b.Crashes)
	}
}

func TestHeartbeatWithoutTheTaskLosesIt(t *testing.T) {
	t.Parallel()
	d := newEnv(t)
	w := d.join("w")
	job := d.submit(stage("a"))
	d.start(job, 0)
	d.now += 15_000
	d.do(sched.Renewed{Worker: w})
	d.wantTask(job, 0, muster.Running, "") // the assignment may still be under way
	d.now++
	d.do(sched.Renewed{Worker: w})
	d.wantTask(job, 0, muster.Queued, muster.WorkerLost) // it was not restarted
	d.advance(2 * second)
	d.start(job, 0)
	d.do(sched.Disconnected{Worker: w}, sched.Joined{Worker: offer("w")})
	d.wantTask(job, 0, muster.Queued, muster.WorkerRestarted)
}

func TestQueueTimeoutEndsUnstartedElementsInOneStep(t *testing.T) {
	t.Parallel()
	d := newEnv(t)
	job := d.submit(stage("a*1000000", func(s *muster.TaskSpec) { s.QueueTimeout = 60 * second }))
	d.join("w")
	d.advance(muster.Duration(59 * time.Second))
	d.advance(second)
	if d.store.groups[job][0].Counts[muster.TimedOut] != 999_998 || len(d.store.tasks) != 2 {
		t.Fatalf("counts %v, %d rows", d.store.groups[job][0].Counts, len(d.store.tasks))
	}
	if g := d.store.groups[job][0]; g.Reason != muster.QueueTimeout || g.UnmaterializedState != muster.TimedOut {
		t.Fatalf("the rest: %+v", g)
	}
}

func TestSubmitOfAMillionWritesTwoRows(t *testing.T) {
	t.Parallel()
	d := newEnv(t)
	job := d.submit(stage("a*1000000"))
	if r := d.last.Rows; len(r.Jobs) != 1 || len(r.Groups) != 1 || len(r.Tasks) != 0 || r.Jobs[0].Spec == nil {
		t.Fatalf("%d jobs, %d groups, %d tasks", len(r.Jobs), len(r.Groups), len(r.Tasks))
	}
	d.do(sched.Cancel{Job: job})
	if r := d.last.Rows; len(r.Tasks) != 0 || d.job(job) != muster.JobCancelled {
		t.Fatalf("%d tasks; the job is %s", len(r.Tasks), d.job(job))
	}
}
