package sched_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sched"
)

func (d *env) worker(w muster.WorkerID) muster.Worker {
	d.t.Helper()
	for _, row := range d.s.Workers(d.now) {
		if row.ID == w {
			return row
		}
	}
	d.t.Fatalf("there is no worker %s", w)
	return muster.Worker{}
}

// heartbeat advances the time in steps, with heartbeats of a worker.
func (d *env) heartbeat(by muster.Duration, w muster.WorkerID, held ...muster.AttemptID) (commands []sched.Command) {
	d.t.Helper()
	for end := d.now.Add(by); d.now < end; {
		d.advance(min(10*second, end.Sub(d.now)))
		commands = append(commands, d.commands...)
		d.do(sched.Renewed{Worker: w, Held: held})
		commands = append(commands, d.commands...)
	}
	d.commands = commands
	return commands
}

// rebuild rebuilds the scheduler from the committed rows, as a restart does.
func (d *env) rebuild() {
	d.t.Helper()
	st, err := sched.Rebuild(sched.Config{}, d.now, d.store.snapshot())
	if err != nil {
		d.t.Fatal(err)
	}
	d.s = st
	d.flush()
}

func TestPauseEndsAtItsDeadline(t *testing.T) {
	t.Parallel()
	d := newEnv(t)
	w := d.join("w")
	d.do(sched.Pause{Worker: w, On: true, Until: d.now.Add(10 * minute)})
	job := d.submit(stage("a"))
	d.wantSent()
	d.heartbeat(9*minute, w)
	d.wantSent()
	if got := d.worker(w); got.State != muster.WorkerPaused || got.Deadline == 0 {
		t.Fatalf("before: %s until %s", got.State, got.Deadline)
	}
	d.heartbeat(minute, w)
	d.wantSent("assign w 1.0#1")
	if got := d.store.workers[w]; got.State != muster.WorkerActive || got.Paused || got.Deadline != 0 {
		t.Fatalf("after: %+v", got)
	}
	d.finish(job, 0, muster.AttemptSucceeded)
}

func TestPauseEndsWhileWorkerOrServerIsDown(t *testing.T) {
	t.Parallel()
	d := newEnv(t)
	w := d.join("w")
	d.do(sched.Pause{Worker: w, On: true, Until: d.now.Add(10 * minute)})
	d.do(sched.Disconnected{Worker: w})
	d.advance(5 * minute)
	d.rebuild()
	d.advance(5 * minute)
	d.join("w")
	if got := d.store.workers[w]; got.State != muster.WorkerActive || got.Paused || got.Deadline != 0 {
		t.Fatalf("%+v", got)
	}
}

func TestDrainPreemptsTasksAtItsDeadline(t *testing.T) {
	t.Parallel()
	d := newEnv(t)
	w := d.join("w")
	job := d.submit(stage("a*2"))
	d.start(job, 0)
	d.do(sched.Drain{Worker: w, On: true, Until: d.now.Add(minute)})
	both := []muster.AttemptID{d.attempt(job, 0), d.attempt(job, 1)}
	d.heartbeat(minute, w, both...)
	d.wantSent("stop w 1.0#1 cancelled", "stop w 1.1#1 cancelled")
	for _, cmd := range d.commands {
		if stop, ok := cmd.(sched.Stop); !ok || stop.Reason != muster.Preempted {
			t.Fatalf("%+v", cmd)
		}
	}
	d.finish(job, 0, muster.AttemptFailed, withReason(muster.Preempted))
	d.wantTask(job, 0, muster.Queued, muster.Preempted)
	d.finish(job, 1, muster.AttemptSucceeded) // it finished before it received the stop
	d.wantSent("leave w")
	d.do(sched.ShutDown{Worker: w})
	if got := d.store.workers[w]; got.Draining || got.Deadline != 0 {
		t.Fatalf("after it left: %+v", got)
	}
	d.join("x")
	d.wantSent("assign x 1.0#2")
	if got := d.task(job, 0); got.Crashes != 0 || got.Retries != 0 {
		t.Fatalf("the preemption cost %d crashes and %d retries", got.Crashes, got.Retries)
	}
}

func TestUnconfirmedPreemptionIsLost(t *testing.T) {
	t.Parallel()
	d := newEnv(t)
	w := d.join("w")
	short := stage("short", func(s *muster.TaskSpec) { s.Kill.Grace = minute })
	saves := stage("saves", func(s *muster.TaskSpec) { s.Checkpoint = &muster.Checkpoint{Grace: 2 * minute} })
	job := d.submit(short, saves)
	held := []muster.AttemptID{d.attempt(job, 0), d.attempt(job, 1)}
	d.do(sched.Drain{Worker: w, On: true, Until: d.now})
	d.advance(0)
	d.wantSent("stop w 1.0#1 cancelled", "stop w 1.1#1 cancelled")
	d.heartbeat(minute+29*second, w, held...)
	d.wantSent()
	d.heartbeat(second, w, held...)
	d.wantTask(job, 0, muster.Queued, muster.Preempted)
	d.wantTask(job, 1, muster.Assigned, muster.NoReason)
	d.heartbeat(6*minute, w, held[1]) // the upload of its checkpoint may take longer
	d.wantTask(job, 1, muster.Queued, muster.Preempted)
	if got := d.task(job, 1); got.Crashes != 0 {
		t.Fatalf("that cost %d crashes", got.Crashes)
	}
}

func TestReconnectedWorkerIsPreemptedAfterTheDeadline(t *testing.T) {
	t.Parallel()
	d := newEnv(t)
	w := d.join("w")
	job := d.submit(stage("a"))
	d.start(job, 0)
	a := d.attempt(job, 0)
	d.do(sched.Drain{Worker: w, On: true, Until: d.now.Add(minute)})
	d.do(sched.Disconnected{Worker: w})
	d.advance(5 * minute) // longer than a preemption, shorter than the lease
	d.wantTask(job, 0, muster.Running, muster.NoReason)
	d.do(sched.Joined{Worker: offer("w"), Held: []muster.AttemptID{a}})
	d.wantSent("stop w 1.0#1 cancelled")
	d.finish(job, 0, muster.AttemptFailed, withReason(muster.Preempted))
	d.wantSent("leave w")
}

func TestDeadlineSurvivesARestart(t *testing.T) {
	t.Parallel()
	for _, away := range []muster.Duration{0, 3 * minute} { // the deadline comes after the restart, or while the server is down
		d := newEnv(t)
		w := d.join("w")
		job := d.submit(stage("a"))
		d.start(job, 0)
		a := d.attempt(job, 0)
		d.do(sched.Drain{Worker: w, On: true, Until: d.now.Add(2 * minute)})
		d.now = d.now.Add(away)
		d.rebuild()
		d.do(sched.Tick{}, sched.Joined{Worker: offer("w"), Held: []muster.AttemptID{a}})
		if away == 0 {
			d.wantSent()
			d.heartbeat(2*minute, w, a)
		}
		d.wantSent("stop w 1.0#1 cancelled")
	}
}

func TestPassedDeadlineAppliesAfterARestart(t *testing.T) {
	t.Parallel()
	d := newEnv(t)
	w := d.join("w")
	job := d.submit(stage("a"))
	a := d.attempt(job, 0)
	d.do(sched.Drain{Worker: w, On: true, Until: d.now})
	d.advance(0)
	d.wantSent("stop w 1.0#1 cancelled")
	d.rebuild()
	d.do(sched.Tick{}, sched.Joined{Worker: offer("w"), Held: []muster.AttemptID{a}})
	d.wantSent("stop w 1.0#1 cancelled")
}

func TestPauseAndDrainReplaceEachOther(t *testing.T) {
	t.Parallel()
	d := newEnv(t)
	w := d.join("w")
	d.submit(stage("a")) // so that a drain does not end at once
	soon, late := d.now.Add(minute), d.now.Add(9*minute)
	for _, c := range []struct {
		name     string
		do       sched.Event
		paused   bool
		draining bool
		deadline muster.Time
	}{
		{"a pause for a while", sched.Pause{Worker: w, On: true, Until: soon}, true, false, soon},
		{"a longer one", sched.Pause{Worker: w, On: true, Until: late}, true, false, late},
		{"a drain ends it", sched.Drain{Worker: w, On: true}, false, true, 0},
		{"a drain by a deadline", sched.Drain{Worker: w, On: true, Until: late}, false, true, late},
		{"a pause for good leaves it be", sched.Pause{Worker: w, On: true}, true, true, late},
		{"and so does its end", sched.Pause{Worker: w}, false, true, late},
		{"an earlier deadline", sched.Drain{Worker: w, On: true, Until: soon}, false, true, soon},
		{"the drain is taken back", sched.Drain{Worker: w}, false, false, 0},
		{"a pause for good", sched.Pause{Worker: w, On: true}, true, false, 0},
		{"a drain keeps it", sched.Drain{Worker: w, On: true, Until: late}, true, true, late},
	} {
		d.do(c.do)
		if got := d.store.workers[w]; got.Paused != c.paused || got.Draining != c.draining || got.Deadline != c.deadline {
			t.Fatalf("%s: paused %v, draining %v, deadline %s", c.name, got.Paused, got.Draining, got.Deadline)
		}
	}
	d.refuse(muster.Conflict, sched.Pause{Worker: w, On: true, Until: soon})
}

func TestCancelledTaskOfADrainedWorkerEndsAsCancelled(t *testing.T) {
	t.Parallel()
	d := newEnv(t)
	w := d.join("w")
	job := d.submit(stage("a"))
	d.start(job, 0)
	d.do(sched.Drain{Worker: w, On: true, Until: d.now})
	d.advance(0)
	d.do(sched.Cancel{Job: job})
	d.wantSent("stop w 1.0#1 cancelled")
	d.finish(job, 0, muster.AttemptFailed, withReason(muster.Preempted))
	d.wantTask(job, 0, muster.Cancelled, muster.CancelledByUser)
}

func TestNextAttemptGetsTheSavedCheckpoint(t *testing.T) {
	t.Parallel()
	d := newEnv(t)
	w := d.join("w")
	job := d.submit(stage("a"))
	one, two := strings.Repeat("1", 64), strings.Repeat("2", 64)
	a := d.attempt(job, 0)
	d.do(sched.CheckpointSaved{Worker: w, Attempt: a, SHA256: one}, sched.CheckpointSaved{Worker: w, Attempt: a, SHA256: two})
	d.refuse(muster.Conflict, sched.CheckpointSaved{Worker: "x", Attempt: a, SHA256: one})
	d.do(sched.Disconnected{Worker: w})
	d.advance(11 * minute)
	d.rebuild()
	d.join("x")
	if len(d.commands) != 1 {
		t.Fatalf("sent %v", d.commands)
	}
	if assign, ok := d.commands[0].(sched.Assign); !ok || assign.Checkpoint != two || assign.Attempt.N != 2 {
		t.Fatalf("sent %+v", d.commands[0])
	}
	d.refuse(muster.Conflict, sched.CheckpointSaved{Worker: w, Attempt: a, SHA256: one})
	if got := d.task(job, 0).Checkpoint; got != two {
		t.Fatalf("the task continues from %s", got)
	}
}

// withGPUs adds two devices to a worker. The first is quarantined for that reason.
func withGPUs(why string) func(*muster.Worker) {
	return func(w *muster.Worker) {
		w.Resources.GPUs = []muster.GPU{
			{UUID: "GPU-0", Index: 0, Vendor: "nvidia", Name: "A100", Memory: 40 * gib, Quarantined: why},
			{UUID: "GPU-1", Index: 1, Vendor: "nvidia", Name: "A100", Memory: 40 * gib},
		}
	}
}

func gpus(n int) func(*muster.TaskSpec) {
	return func(s *muster.TaskSpec) { s.Resources.GPUs.Count = n }
}

// offered returns a new description of a worker.
func offered(w muster.Worker) sched.Offered {
	return sched.Offered{Worker: w.ID, Offer: muster.Offer{Tags: w.Tags, Kinds: w.Kinds, Resources: w.Resources}}
}

func TestOfferQuarantinesAndReleasesADevice(t *testing.T) {
	t.Parallel()
	d := newEnv(t)
	w := d.join("w", withGPUs(""))
	job := d.submit(stage("a*3", gpus(1)))
	d.wantSent("assign w 1.0#1", "assign w 1.1#1")
	d.do(offered(offer("w", withGPUs("xid 79"))))
	d.wantSent()
	d.finish(job, 0, muster.AttemptSucceeded) // its task keeps running, and it gets no new ones
	d.wantSent()
	x, err := d.s.Explain(d.now, muster.TaskID{Job: job, Num: 2})
	if err != nil || len(x.Workers) != 1 || !strings.Contains(x.Workers[0].Why, "GPU-0) is quarantined: xid 79") {
		t.Fatalf("%+v, %v", x, err)
	}
	if free := d.worker(w).Free.GPUs; len(free) != 0 {
		t.Fatalf("free: %v", free)
	}
	d.do(offered(offer("w", withGPUs(""))))
	d.wantSent("assign w 1.2#1")
	if got := d.task(job, 2).Grant.GPUs; !slices.Equal(got, []string{"GPU-0"}) {
		t.Fatalf("granted %v", got)
	}
}

func TestInvalidOfferIsRefusedLikeAHello(t *testing.T) {
	t.Parallel()
	d := newEnv(t)
	w := d.join("w")
	d.refuse(muster.NotFound, sched.Offered{Worker: "nobody"})
	d.refuse(muster.Invalid, sched.Offered{Worker: w, Offer: muster.Offer{Resources: muster.Resources{CPUs: -1}}})
	d.do(sched.Disconnected{Worker: w})
	d.refuse(muster.Conflict, offered(offer("w", slots(7))))
	if got := d.worker(w).Resources; got.Slots != 2 {
		t.Fatalf("a refused offer was applied: %+v", got)
	}
}

func TestUnchangedOfferWritesNothing(t *testing.T) {
	t.Parallel()
	d := newEnv(t)
	d.join("w", withGPUs("hot"))
	d.do(offered(offer("w", withGPUs("hot"))))
	if !d.last.Rows.Empty() || len(d.last.Events) != 0 {
		t.Fatalf("%+v", d.last)
	}
}

func TestHealRequiresAConnectedWorker(t *testing.T) {
	t.Parallel()
	d := newEnv(t)
	w := d.join("w", withGPUs("xid 79"))
	d.do(sched.Heal{Worker: w})
	d.wantSent("heal w GPU-0")
	d.do(sched.Heal{Worker: w, GPUs: []string{"0"}})
	d.wantSent("heal w GPU-0")
	d.refuse(muster.Conflict, sched.Heal{Worker: w, GPUs: []string{"1"}})
	d.refuse(muster.NotFound, sched.Heal{Worker: w, GPUs: []string{"GPU-9"}})
	d.refuse(muster.NotFound, sched.Heal{Worker: "nobody"})
	d.do(sched.Disconnected{Worker: w})
	d.refuse(muster.Conflict, sched.Heal{Worker: w})
}

func TestWorkerShowsWhyItTakesNoTasks(t *testing.T) {
	t.Parallel()
	d := newEnv(t)
	w := d.join("w", func(w *muster.Worker) { w.Address = "10.0.0.7" })
	d.do(sched.Ready{Worker: w, Constrained: "on battery"})
	if got := d.worker(w); got.Constrained != "on battery" || got.State != muster.WorkerActive || got.Address != "10.0.0.7" {
		t.Fatalf("%+v", got)
	}
	if n := len(d.last.Events); n != 1 || d.last.Events[0].Constrained != "on battery" {
		t.Fatalf("events: %+v", d.last.Events)
	}
	d.do(sched.Ready{Worker: w, Constrained: "on battery"})
	if n := len(d.last.Events); n != 0 {
		t.Fatalf("nothing changed, but %d events were published", n)
	}
	d.do(sched.Disconnected{Worker: w})
	if got := d.worker(w); got.Constrained != "" {
		t.Fatalf("while unreachable: got %q", got.Constrained)
	}
}

func TestWorkerAttemptsAreListed(t *testing.T) {
	t.Parallel()
	d := newEnv(t)
	w := d.join("w", slots(200))
	job := d.submit(stage("a*150"))
	if got := d.worker(w); got.Running != 150 || len(got.Tasks) != 100 || got.Tasks[0].Job != job {
		t.Fatalf("%d run, %d are listed", got.Running, len(got.Tasks))
	}
}
