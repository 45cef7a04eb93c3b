package sched_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sched"
)

func members(n int) func(*muster.TaskSpec) {
	return func(t *muster.TaskSpec) { t.Gang = &muster.Gang{Size: n} }
}

func onLossEnd(t *muster.TaskSpec) { t.Gang.OnLoss = muster.GangEnd }

func retries(n int) func(*muster.TaskSpec) {
	return func(t *muster.TaskSpec) { t.Retries.Max = n }
}

// wantStates checks that the tasks of a job are in these states.
func (d *env) wantStates(job muster.JobID, want ...muster.TaskState) {
	d.t.Helper()
	var got []muster.TaskState
	for _, t := range d.store.allTasks(job) {
		got = append(got, t.State)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		d.t.Fatalf("job %s: %s", job, diff)
	}
	d.checkRebuild()
}

// checkRebuild rebuilds the state from the committed rows, checks that it is the same, and continues with it.
func (d *env) checkRebuild() {
	d.t.Helper()
	s, err := sched.Rebuild(sched.Config{}, d.now, d.store.snapshot())
	if err != nil {
		d.t.Fatal(err)
	}
	if diff := cmp.Diff(d.s.Snapshot(), s.Snapshot()); diff != "" {
		d.t.Fatalf("rebuilt: %s", diff)
	}
}

// gangAssigns returns the assignments of gang members of the last batch.
func (d *env) gangAssigns() []sched.Assign {
	d.t.Helper()
	var list []sched.Assign
	for _, cmd := range d.commands {
		if a, ok := cmd.(sched.Assign); ok {
			if a.Gang == nil {
				d.t.Fatalf("attempt %s has no rank in its gang", a.Attempt)
			}
			list = append(list, a)
		}
	}
	return list
}

func withSlots(n int) func(*muster.Worker) { return func(w *muster.Worker) { w.Resources.Slots = n } }

func withAddress(address string) func(*muster.Worker) {
	return func(w *muster.Worker) { w.Address = address }
}

func TestGangStartsTogetherOrNotAtAll(t *testing.T) {
	t.Parallel()
	d := newEnv(t)
	d.join("a", withAddress("127.0.0.1"))
	job := d.submit(stage("g", members(4)))
	d.wantStates(job, muster.Queued, muster.Queued, muster.Queued, muster.Queued)
	d.wantSent()
	d.join("b", withSlots(1), withAddress("10.0.0.2"))
	d.wantSent()
	d.join("c", withSlots(1), withAddress("10.0.0.3"))
	d.wantStates(job, muster.Assigned, muster.Assigned, muster.Assigned, muster.Assigned)
	assigns := d.gangAssigns()
	if len(assigns) != 4 {
		t.Fatalf("%d are assigned", len(assigns))
	}
	for i, a := range assigns {
		g := a.Gang
		if g.Rank != i || g.Rank != a.Element || g.Size != 4 || g.Master != "10.0.0.2" || g.Port != assigns[0].Gang.Port || g.Port < 20000 || g.Port >= 30000 {
			t.Errorf("member %d on %s: %+v", i, a.Worker, g)
		}
	}
	if assigns[0].Worker != "b" || assigns[1].Worker != "a" || assigns[2].Worker != "a" || assigns[3].Worker != "c" {
		t.Errorf("on %s, %s, %s and %s: the master is not on the worker that others reach", assigns[0].Worker, assigns[1].Worker, assigns[2].Worker, assigns[3].Worker)
	}
	for i := range 4 {
		d.start(job, i)
	}
	for i := range 4 {
		d.wantStates(job, muster.Running, muster.Running, muster.Running, muster.Running)
		d.finish(job, i, muster.AttemptSucceeded, withExitCode(0))
	}
	d.wantStates(job, muster.Succeeded, muster.Succeeded, muster.Succeeded, muster.Succeeded)
	if d.job(job) != muster.JobSucceeded {
		t.Errorf("the job is %s", d.job(job))
	}
}

func TestGangOnOneWorkerUsesLoopback(t *testing.T) {
	t.Parallel()
	d := newEnv(t)
	d.join("small", withAddress("10.0.0.1"))
	d.join("large", withSlots(8), withAddress("10.0.0.2"))
	d.join("fits", withSlots(4), withAddress("10.0.0.3"))
	d.submit(stage("g", members(4)))
	for _, a := range d.gangAssigns() {
		if a.Worker != "fits" || a.Gang.Master != "127.0.0.1" {
			t.Errorf("rank %d on %s at %s", a.Gang.Rank, a.Worker, a.Gang.Master)
		}
	}
}

func TestGangPrefersOneGPUModel(t *testing.T) {
	t.Parallel()
	d := newEnv(t)
	gpus := func(vendor string, models ...string) func(*muster.Worker) {
		return func(w *muster.Worker) {
			for i, m := range models {
				w.Resources.GPUs = append(w.Resources.GPUs, muster.GPU{UUID: w.Name + m + string(rune('0'+i)), Index: i, Vendor: vendor, Name: m, Memory: 40 * gib})
			}
		}
	}
	d.join("a", gpus("nvidia", "A100", "A100"))
	d.join("m", gpus("amd", "MI300", "MI300"))
	need := func(t *muster.TaskSpec) { t.Resources = muster.Request{CPUs: 1, GPUs: muster.GPURequest{Count: 1}} }
	four := d.submit(stage("four", members(4), need))
	d.wantStates(four, muster.Queued, muster.Queued, muster.Queued, muster.Queued) // never of two vendors
	d.join("h", gpus("nvidia", "H100", "H100"))
	d.wantStates(four, muster.Assigned, muster.Assigned, muster.Assigned, muster.Assigned)
	for i := range 4 {
		if w := d.task(four, i).Worker; w == "m" {
			t.Errorf("rank %d has GPUs of another vendor", i)
		}
		d.finish(four, i, muster.AttemptSucceeded)
	}
	d.join("i", gpus("nvidia", "H100", "H100"))
	again := d.submit(stage("again", members(4), need))
	for i := range 4 {
		if w := d.task(again, i).Worker; w != "h" && w != "i" {
			t.Errorf("rank %d is on %s, although there are four H100", i, w)
		}
	}
}

// started returns an env in which a gang of three runs, two of them on worker a.
func started(t *testing.T, change ...func(*muster.TaskSpec)) (*env, muster.JobID) {
	t.Helper()
	d := newEnv(t)
	d.join("a", withAddress("10.0.0.1"))
	d.join("b", withSlots(1), withAddress("10.0.0.2"))
	job := d.submit(stage("g", append([]func(*muster.TaskSpec){members(3)}, change...)...))
	for i := range 3 {
		d.start(job, i)
	}
	d.wantStates(job, muster.Running, muster.Running, muster.Running)
	return d, job
}

func TestOneFailureRestartsTheGangAndCountsOnce(t *testing.T) {
	t.Parallel()
	d, job := started(t, retries(1))
	d.finish(job, 0, muster.AttemptSucceeded, withExitCode(0))
	d.finish(job, 2, muster.AttemptFailed, withReason(muster.ExitCode), withExitCode(3))
	d.wantSent("stop a 1.1#1 cancelled")
	d.wantStates(job, muster.Queued, muster.Running, muster.Queued)
	x, err := d.s.Explain(d.now, muster.TaskID{Job: job, Num: 0})
	if err != nil || !strings.HasPrefix(x.Summary, "its gang restarts when its 1 running tasks have stopped (member 1.2 (rank 2) of its gang ended: exit_code)") {
		t.Errorf("%s, %v", x.Summary, err)
	}
	if m := d.task(job, 1).Message; m != "member 1.2 (rank 2) of its gang ended: exit_code" {
		t.Errorf("the message is %q", m)
	}
	d.advance(5 * second)
	d.wantStates(job, muster.Queued, muster.Running, muster.Queued) // the pause is over, but not the last attempt
	d.finish(job, 1, muster.AttemptCancelled, withReason(muster.GangMember))
	d.wantStates(job, muster.Assigned, muster.Assigned, muster.Assigned)
	if n := len(d.gangAssigns()); n != 3 {
		t.Fatalf("%d are assigned", n)
	}
	for i := range 3 {
		if row := d.task(job, i); row.Retries != 1 || row.Attempt != 2 || row.Crashes != 0 {
			t.Errorf("member %d was retried %d times, attempt %d, %d crashes", i, row.Retries, row.Attempt, row.Crashes)
		}
		d.start(job, i)
	}
	d.finish(job, 1, muster.AttemptFailed, withReason(muster.ExitCode), withExitCode(4)) // another one, and no retry is left
	d.finish(job, 0, muster.AttemptFailed, withReason(muster.Signal))
	d.finish(job, 2, muster.AttemptSucceeded)
	d.wantStates(job, muster.Cancelled, muster.Failed, muster.Cancelled)
	d.wantTask(job, 1, muster.Failed, muster.ExitCode)
	for _, i := range []int{0, 2} {
		d.wantTask(job, i, muster.Cancelled, muster.GangMember)
		if m := d.task(job, i).Message; m != "member 1.1 (rank 1) of its gang ended: exit_code" {
			t.Errorf("the message is %q", m)
		}
	}
	if d.job(job) != muster.JobFailed {
		t.Errorf("the job is %s", d.job(job))
	}
}

func TestSucceededMemberEndsWithItsGang(t *testing.T) {
	t.Parallel()
	d, job := started(t)
	d.finish(job, 0, muster.AttemptSucceeded)
	x, err := d.s.Explain(d.now, muster.TaskID{Job: job, Num: 0})
	if err != nil || x.Summary != "has succeeded and waits for 2 other tasks of its gang" {
		t.Errorf("%s, %v", x.Summary, err)
	}
	for _, w := range d.s.Workers(d.now) {
		if w.ID == "a" && (w.Running != 1 || w.Free.Slots != 1) {
			t.Errorf("worker a has %d attempts and %d free slots", w.Running, w.Free.Slots)
		}
	}
	d.finish(job, 1, muster.AttemptFailed, withReason(muster.ExitCode))
	d.wantTask(job, 0, muster.Cancelled, muster.GangMember)
	if m := d.task(job, 0).Message; m != "member 1.1 (rank 1) of its gang ended: exit_code" {
		t.Errorf("the message is %q", m)
	}
	d.heartbeatAll(41 * second) // the last one's worker does not confirm
	d.wantTask(job, 2, muster.Cancelled, muster.GangMember)
}

func TestLostWorkerRestartsTheGang(t *testing.T) {
	t.Parallel()
	d, job := started(t)
	d.do(sched.ShutDown{Worker: "a"}) // which has ranks 0 and 1
	d.wantSent("stop b 1.2#1 cancelled")
	d.wantStates(job, muster.Queued, muster.Queued, muster.Running)
	d.finish(job, 2, muster.AttemptFailed, withReason(muster.ExitCode))
	d.wantStates(job, muster.Queued, muster.Queued, muster.Queued)
	d.join("a")
	d.wantStates(job, muster.Assigned, muster.Assigned, muster.Assigned)
	for i := range 3 {
		if row := d.task(job, i); row.Retries+row.Crashes != 0 {
			t.Errorf("the shutdown of a worker cost member %d a retry", i)
		}
	}
	// A crash counts, once for each.
	d.do(sched.Disconnected{Worker: "b"})
	d.advance(11 * minute)
	for i := range 3 {
		if row := d.task(job, i); row.Crashes != 1 {
			t.Errorf("member %d counts %d crashes", i, row.Crashes)
		}
	}
}

// TestFailuresAfterALostMemberAreInfrastructure loses a machine, and with it the connections of the other
// members to those on it.
func TestFailuresAfterALostMemberAreInfrastructure(t *testing.T) {
	t.Parallel()
	d, job := started(t)
	d.do(sched.Disconnected{Worker: "b"})
	d.finish(job, 0, muster.AttemptFailed, withReason(muster.ExitCode), withExitCode(1))
	d.wantTask(job, 0, muster.Queued, muster.WorkerLost)
	if m := d.task(job, 0).Message; !strings.Contains(m, "it ended while worker b of another member was unreachable (exit_code)") {
		t.Errorf("the message is %q", m)
	}
	d.finish(job, 1, muster.AttemptFailed, withReason(muster.ExitCode), withExitCode(1))
	d.join("b", withSlots(1)) // without what it had
	d.advance(2 * second)
	d.wantStates(job, muster.Assigned, muster.Assigned, muster.Assigned)
	for i := range 3 {
		if row := d.task(job, i); row.Retries != 0 || row.Crashes != 1 {
			t.Errorf("member %d was retried %d times, and counts %d crashes", i, row.Retries, row.Crashes)
		}
	}
}

func TestGangEndsOnLoss(t *testing.T) {
	t.Parallel()
	d, job := started(t, retries(5), onLossEnd)
	d.do(sched.Disconnected{Worker: "b"})
	for d.task(job, 2).State == muster.Running {
		d.advance(10 * second)
		d.do(sched.Renewed{Worker: "a", Held: []muster.AttemptID{d.attempt(job, 0), d.attempt(job, 1)}})
	}
	d.wantTask(job, 2, muster.Failed, muster.WorkerLost)
	d.finish(job, 0, muster.AttemptCancelled, withReason(muster.GangMember))
	d.finish(job, 1, muster.AttemptCancelled, withReason(muster.GangMember))
	d.wantStates(job, muster.Cancelled, muster.Cancelled, muster.Failed)
}

func TestRejectionRequeuesTheGang(t *testing.T) {
	t.Parallel()
	for _, loss := range []func(*muster.TaskSpec){func(*muster.TaskSpec) {}, onLossEnd} {
		d := newEnv(t)
		d.join("a")
		d.join("b", withSlots(1))
		job := d.submit(stage("g", members(3), loss))
		port := d.gangAssigns()[0].Gang.Port
		d.start(job, 1)
		d.do(sched.Rejected{Worker: "a", Attempt: d.attempt(job, 0), Message: "port 20001 is taken"})
		d.wantSent("stop a 1.1#1 cancelled", "stop b 1.2#1 cancelled")
		d.wantStates(job, muster.Queued, muster.Running, muster.Assigned)
		d.finish(job, 1, muster.AttemptCancelled, withReason(muster.GangMember))
		d.do(sched.Rejected{Worker: "b", Attempt: d.attempt(job, 2), Message: "was asked to stop"})
		d.wantStates(job, muster.Queued, muster.Queued, muster.Queued)
		x, err := d.s.Explain(d.now, muster.TaskID{Job: job, Num: 2})
		if err != nil || x.Workers[0].Filter != "rejected" {
			t.Errorf("%+v, %v", x, err)
		}
		d.advance(11 * second)
		d.wantStates(job, muster.Assigned, muster.Assigned, muster.Assigned)
		if now := d.gangAssigns()[0].Gang.Port; now == port {
			t.Errorf("port %d is reused", port)
		}
		if row := d.task(job, 0); row.Attempt != 2 || row.Retries+row.Crashes != 0 {
			t.Errorf("%+v", row)
		}
	}
}

func TestCancelOfAMemberCancelsTheGang(t *testing.T) {
	t.Parallel()
	d, job := started(t)
	d.finish(job, 1, muster.AttemptSucceeded)
	d.do(sched.Cancel{Job: job, Tasks: []muster.Span{{First: 2, Last: 2}}})
	d.wantStates(job, muster.Cancelling, muster.Cancelled, muster.Cancelling)
	d.finish(job, 0, muster.AttemptSucceeded) // it succeeded, but the others did not
	d.refuse(muster.Conflict, d.retryAll(job))
	d.finish(job, 2, muster.AttemptCancelled, withReason(muster.CancelledByUser))
	for i := range 3 {
		d.wantTask(job, i, muster.Cancelled, muster.CancelledByUser)
	}

	// While it is queued, before its first attempt and between two.
	job = d.submit(stage("g", members(4)))
	d.do(sched.Cancel{Job: job, Tasks: []muster.Span{{First: 1, Last: 1}}})
	d.wantStates(job, muster.Cancelled, muster.Cancelled, muster.Cancelled, muster.Cancelled)
	job = d.submit(stage("g", members(3), retries(1)))
	d.finish(job, 0, muster.AttemptFailed, withReason(muster.ExitCode))
	d.finish(job, 1, muster.AttemptCancelled, withReason(muster.GangMember))
	d.do(sched.Cancel{Job: job, Tasks: nil})
	d.wantStates(job, muster.Cancelled, muster.Cancelled, muster.Cancelling)
	d.finish(job, 2, muster.AttemptCancelled, withReason(muster.GangMember))
	d.wantStates(job, muster.Cancelled, muster.Cancelled, muster.Cancelled)
}

// retryAll asks to retry what has ended of a job without success.
func (d *env) retryAll(job muster.JobID) sched.Retry { return d.store.retry(job, nil) }

// retryOf asks to retry one task.
func (d *env) retryOf(job muster.JobID, num int) sched.Retry {
	return d.store.retry(job, []muster.Span{{First: num, Last: num}})
}

func TestRetryOfAMemberRetriesTheGang(t *testing.T) {
	t.Parallel()
	d, job := started(t)
	d.finish(job, 2, muster.AttemptFailed, withReason(muster.ExitCode))
	d.refuse(muster.Conflict, d.retryOf(job, 2))
	d.finish(job, 0, muster.AttemptCancelled, withReason(muster.GangMember))
	d.finish(job, 1, muster.AttemptCancelled, withReason(muster.GangMember))
	d.wantStates(job, muster.Cancelled, muster.Cancelled, muster.Failed)
	d.do(d.retryOf(job, 0))
	d.wantStates(job, muster.Assigned, muster.Assigned, muster.Assigned)

	// Of one that never ran.
	job = d.submit(stage("g", members(4)))
	d.do(sched.Cancel{Job: job})
	d.do(d.retryOf(job, 3))
	d.wantStates(job, muster.Queued, muster.Queued, muster.Queued, muster.Queued)
}

func TestDrainPreemptsTheWholeGang(t *testing.T) {
	t.Parallel()
	for _, loss := range []func(*muster.TaskSpec){func(*muster.TaskSpec) {}, onLossEnd} {
		d, job := started(t, loss)
		d.do(sched.Drain{Worker: "b", On: true, Until: d.now.Add(minute)})
		d.do(sched.Renewed{Worker: "a", Held: []muster.AttemptID{d.attempt(job, 0), d.attempt(job, 1)}})
		for range 6 {
			d.advance(10 * second)
			commands := d.commands
			d.do(sched.Renewed{Worker: "a", Held: []muster.AttemptID{d.attempt(job, 0), d.attempt(job, 1)}},
				sched.Renewed{Worker: "b", Held: []muster.AttemptID{d.attempt(job, 2)}})
			d.commands = commands
		}
		d.wantSent("stop a 1.0#1 cancelled", "stop a 1.1#1 cancelled", "stop b 1.2#1 cancelled")
		for _, cmd := range d.commands {
			if stop, ok := cmd.(sched.Stop); !ok || stop.Reason != muster.Preempted {
				t.Errorf("%+v", cmd)
			}
		}
		d.finish(job, 2, muster.AttemptFailed, withReason(muster.Preempted))
		d.wantSent("leave b")
		d.finish(job, 0, muster.AttemptSucceeded) // a program may save and exit with 0
		d.finish(job, 1, muster.AttemptFailed, withReason(muster.Preempted))
		d.wantStates(job, muster.Queued, muster.Queued, muster.Queued)
		d.join("c", withSlots(1))
		d.wantStates(job, muster.Assigned, muster.Assigned, muster.Assigned)
		if row := d.task(job, 2); row.Retries+row.Crashes != 0 {
			t.Errorf("it cost %+v", row)
		}
	}
}

func TestGangWaitsForItsStageAndBackoff(t *testing.T) {
	t.Parallel()
	d := newEnv(t)
	d.join("a")
	job := d.submit(stage("first"), stage("g<first", members(2)), stage("last<g"))
	d.finish(job, 0, muster.AttemptSucceeded)
	d.wantStates(job, muster.Succeeded, muster.Assigned, muster.Assigned, muster.Waiting)
	d.finish(job, 1, muster.AttemptSucceeded)
	d.wantTask(job, 3, muster.Waiting, muster.NoReason)
	d.finish(job, 2, muster.AttemptFailed, withReason(muster.ExitCode))
	d.wantTask(job, 3, muster.Skipped, muster.NeedNotMet)
	d.do(d.retryAll(job))
	d.wantStates(job, muster.Succeeded, muster.Assigned, muster.Assigned, muster.Waiting)
	d.finish(job, 2, muster.AttemptSucceeded)
	d.finish(job, 1, muster.AttemptSucceeded)
	d.wantTask(job, 3, muster.Assigned, muster.NoReason)

	late := d.submit(stage("g", members(3), func(t *muster.TaskSpec) { t.QueueTimeout = minute }))
	d.heartbeatAll(2 * minute)
	for i := range 3 {
		d.wantTask(late, i, muster.TimedOut, muster.QueueTimeout)
	}
}

func TestExplainShowsWhatAGangNeeds(t *testing.T) {
	t.Parallel()
	d := newEnv(t)
	d.join("a")
	d.join("b", withSlots(1))
	busy := d.submit(stage("busy"))
	waits, never := d.submit(stage("g", members(3))), d.submit(stage("g", members(4)))
	for job, want := range map[muster.JobID]string{
		waits: "waits for room: the gang needs room for 3 tasks at once, and there is room for 2 now",
		never: "no worker can run it: the gang needs room for 4 tasks at once, and the workers together have room for 3",
	} {
		for num := range 3 {
			x, err := d.s.Explain(d.now, muster.TaskID{Job: job, Num: num})
			if err != nil || x.Summary != want || !strings.Contains(x.Nearest, "room for 1 more") {
				t.Errorf("%s; %s; %v", x.Summary, x.Nearest, err)
			}
			if v := x.Workers[0]; !v.Fits || !strings.HasPrefix(v.Why, "has room for 1 of ") {
				t.Errorf("%+v", v)
			}
		}
	}
	d.finish(busy, 0, muster.AttemptSucceeded)
	d.wantTask(waits, 0, muster.Assigned, muster.NoReason)
	plan := d.s.Plan(d.now, &muster.Spec{Project: "default", Tasks: []muster.TaskSpec{stage("g", members(2))}})
	if plan[0].Summary != "waits for room: the gang needs room for 2 tasks at once, and there is room for 0 now" {
		t.Errorf("%+v", plan)
	}
}

// TestGangDoesNotStarve has small tasks that take all free resources, until as many workers are reserved as the gang needs, which is all of
// them.
func TestGangDoesNotStarve(t *testing.T) {
	t.Parallel()
	d := newEnv(t)
	for _, w := range []string{"a", "b", "c", "d"} {
		d.join(w)
	}
	small := d.submit(stage("small*10000", cpus(2)))
	job := d.submit(stage("g", members(4), cpus(4)))
	kept := 0
	for turn := range 200 {
		d.heartbeatAll(10 * second)
		ended := 0
		for _, row := range d.store.snapshot().Tasks { // on every worker one task ends in each turn, and then the other
			if row.State == muster.Assigned && row.ID.Job == small && (row.ID.Num+turn)%2 == 0 {
				d.finish(small, row.ID.Num, muster.AttemptSucceeded)
				ended++
			}
		}
		if d.task(job, 0).State == muster.Assigned {
			d.wantStates(job, muster.Assigned, muster.Assigned, muster.Assigned, muster.Assigned)
			if kept == 0 {
				t.Error("it was placed without a reserved worker")
			}
			return
		}
		x, err := d.s.Explain(d.now, muster.TaskID{Job: job, Num: 1})
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(x.Summary, "; 4 workers are reserved for it") {
			kept++
		}
		if ended == 0 && kept == 0 {
			t.Fatalf("turn %d: nothing ended", turn)
		}
	}
	x, err := d.s.Explain(d.now, muster.TaskID{Job: job, Num: 1})
	t.Fatalf("it starves: %+v, %v", x, err)
}
