package sched_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sched"
)

func slots(n int) func(*muster.Worker) {
	return func(w *muster.Worker) { w.Resources.Slots = n }
}

func TestQueueOrderIsPriorityThenAge(t *testing.T) {
	t.Parallel()
	d := newEnv(t)
	old := d.submitAs("p", 50, stage("a"))
	low := d.submitAs("p", 10, stage("a"))
	young := d.submitAs("p", 50, stage("a"))
	high := d.submitAs("p", 90, stage("a"))
	d.join("w", slots(1))
	for _, job := range []muster.JobID{high, old, young, low} {
		d.wantSent(fmt.Sprintf("assign w %s.0#1", job))
		d.finish(job, 0, muster.AttemptSucceeded)
	}
}

func TestProjectsShareTheFleetFairly(t *testing.T) {
	t.Parallel()
	d := newEnv(t)
	a := d.submitAs("a", 50, stage("x*100"))
	b := d.submitAs("b", 50, stage("x*100"))
	c := d.submitAs("c", 50, stage("x*2"))
	d.join("w", slots(12))
	held := func(id muster.JobID) int64 { return d.store.groups[id][0].Counts[muster.Assigned] }
	if held(a) != 5 || held(b) != 5 || held(c) != 2 {
		t.Fatalf("they have %d, %d and %d", held(a), held(b), held(c))
	}
}

func TestSharesUseTheDominantResource(t *testing.T) {
	t.Parallel()
	d := newEnv(t)
	// a's tasks take a quarter of the memory each, b's an eighth of the cpus.
	a := d.submitAs("a", 50, stage("x*100", func(s *muster.TaskSpec) { s.Resources = muster.Request{CPUs: 0.1, Memory: 4 * gib} }))
	b := d.submitAs("b", 50, stage("x*100", func(s *muster.TaskSpec) { s.Resources.CPUs = 0.5 }))
	d.join("w")
	held := func(id muster.JobID) int64 { return d.store.groups[id][0].Counts[muster.Assigned] }
	if held(a) != 4 || held(b) != 7 {
		t.Fatalf("they have %d and %d", held(a), held(b))
	}
}

func TestBlockedShapeDoesNotBlockOthers(t *testing.T) {
	t.Parallel()
	d := newEnv(t)
	big := d.submit(stage("big*3", func(s *muster.TaskSpec) { s.Resources.CPUs = 3 }))
	d.submit(stage("small", func(s *muster.TaskSpec) { s.Resources.CPUs = 1 }))
	d.join("w")
	d.wantSent("assign w 1.0#1", "assign w 2.0#1")
	d.finish(2, 0, muster.AttemptSucceeded)
	d.wantSent()
	d.finish(big, 0, muster.AttemptSucceeded)
	d.wantSent("assign w 1.1#1")
}

func TestTasksSpreadOverWorkers(t *testing.T) {
	t.Parallel()
	d := newEnv(t)
	d.join("w2", slots(3))
	d.join("w1", slots(3))
	d.submit(stage("a*4"))
	d.wantSent("assign w1 1.0#1", "assign w2 1.1#1", "assign w1 1.2#1", "assign w2 1.3#1")
}

func TestPauseResumeDrain(t *testing.T) {
	t.Parallel()
	d := newEnv(t)
	w := d.join("w")
	state := func(want muster.WorkerState) {
		t.Helper()
		if got := d.store.workers[w].State; got != want {
			t.Fatalf("the worker is %s, want %s", got, want)
		}
	}
	first := d.submit(stage("a"))
	d.do(sched.Pause{Worker: w, On: true})
	state(muster.WorkerPaused)
	second := d.submit(stage("a"))
	d.wantSent()
	d.do(sched.Pause{Worker: w})
	d.wantSent("assign w 2.0#1")
	d.do(sched.Ready{Worker: w, Constrained: "on battery"})
	third := d.submit(stage("a"))
	d.finish(second, 0, muster.AttemptSucceeded)
	d.wantSent()
	d.do(sched.Ready{Worker: w})
	d.wantSent("assign w 3.0#1")
	d.refuse(muster.Conflict, sched.Remove{Worker: w})
	d.do(sched.Drain{Worker: w, On: true})
	state(muster.WorkerDraining)
	d.finish(third, 0, muster.AttemptSucceeded)
	d.wantSent()
	d.finish(first, 0, muster.AttemptSucceeded)
	d.wantSent("leave w")
	d.do(sched.ShutDown{Worker: w})
	state(muster.WorkerGone)
	d.do(sched.Remove{Worker: w})
	if len(d.s.Workers(d.now)) != 0 || len(d.store.workers) != 0 {
		t.Fatalf("workers: %v, %v", d.s.Workers(d.now), d.store.workers)
	}
	d.refuse(muster.NotFound, sched.Pause{Worker: w, On: true})
}

func TestWorkerThatLeavesReturnsItsTasks(t *testing.T) {
	t.Parallel()
	d := newEnv(t)
	w := d.join("w")
	job := d.submit(stage("a"))
	d.start(job, 0)
	d.do(sched.ShutDown{Worker: w})
	d.wantTask(job, 0, muster.Queued, muster.WorkerShutdown)
	d.join("x")
	d.wantSent("assign x 1.0#2")
	if got := d.task(job, 0); got.Crashes != 0 {
		t.Fatalf("an orderly leave counts as %d crashes", got.Crashes)
	}
}

// TestWorkersMayMissThreeOfTheirHeartbeats checks that a worker is unreachable after three heartbeats of the interval that it asked for.
func TestWorkersMayMissThreeOfTheirHeartbeats(t *testing.T) {
	t.Parallel()
	for _, interval := range []time.Duration{time.Second, time.Minute} {
		d := newEnv(t)
		w := d.join("w", func(w *muster.Worker) { w.Heartbeat = muster.Duration(interval) })
		d.advance(muster.Duration(3*interval - time.Millisecond))
		if got := d.store.workers[w].State; got != muster.WorkerActive {
			t.Errorf("%s: the worker is %s after less than three heartbeats", interval, got)
		}
		d.advance(muster.Duration(time.Millisecond))
		if got := d.store.workers[w].State; got != muster.WorkerUnreachable {
			t.Errorf("%s: the worker is %s after three heartbeats", interval, got)
		}
	}
}

func TestUnreachableWorkerIsRemoved(t *testing.T) {
	t.Parallel()
	d := newEnv(t)
	w := d.join("w")
	d.do(sched.Disconnected{Worker: w})
	d.advance(muster.Duration(59 * time.Minute))
	if got := d.store.workers[w].State; got != muster.WorkerUnreachable {
		t.Fatalf("the worker is %s", got)
	}
	d.advance(muster.Duration(time.Minute))
	if got := d.store.workers[w].State; got != muster.WorkerGone {
		t.Fatalf("the worker is %s", got)
	}
	d.join("w")
	if got := d.store.workers[w].State; got != muster.WorkerActive {
		t.Fatalf("the worker is %s", got)
	}
}

func TestWorkersShowFreeResources(t *testing.T) {
	t.Parallel()
	d := newEnv(t)
	w := d.join("w")
	job := d.submit(stage("a", func(s *muster.TaskSpec) { s.Resources = muster.Request{CPUs: 1.5, Memory: gib} }))
	d.do(sched.Renewed{Worker: w, Held: []muster.AttemptID{d.attempt(job, 0)}, Load: &muster.Load{CPU: 0.5}})
	got := d.s.Workers(d.now)[0]
	if got.Free.CPUs != 2.5 || got.Free.Memory != 15*gib || got.Free.Slots != 2 || got.Running != 1 || got.Load.CPU != 0.5 || got.LastSeenAt != d.now {
		t.Fatalf("%+v, free %+v", got, got.Free)
	}
}

func TestInvalidWorkersAreRefused(t *testing.T) {
	t.Parallel()
	d := newEnv(t)
	for name, change := range map[string]func(*muster.Worker){
		"no id":          func(w *muster.Worker) { w.ID = "" },
		"negative cpus":  func(w *muster.Worker) { w.Resources.CPUs = -1 },
		"negative price": func(w *muster.Worker) { w.Price = -1 },
		"same gpu twice": func(w *muster.Worker) { w.Resources.GPUs = []muster.GPU{{UUID: "g"}, {UUID: "g"}} },
	} {
		if err := d.s.Apply(d.now, sched.Joined{Worker: offer("w", change)}); muster.CodeOf(err) != muster.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	if len(d.s.Workers(d.now)) > 0 {
		t.Error("a refused worker is known")
	}
}

func TestReportsOfUnknownAttemptsAreDropped(t *testing.T) {
	t.Parallel()
	d := newEnv(t)
	w := d.join("w")
	d.submit(stage("a*5"))
	for _, a := range []string{"9.0#1", "1.7#1", "1.4#1", "1.0#2"} {
		id, err := muster.ParseAttemptID(a)
		if err != nil {
			t.Fatal(err)
		}
		d.refuse(muster.Conflict, sched.Finished{Worker: w, Report: muster.Report{Attempt: id, Outcome: muster.AttemptSucceeded}})
	}
	if len(d.store.late) > 0 {
		t.Fatalf("kept: %v", d.store.late)
	}
}

func TestExplain(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		workers []muster.Worker
		ask     func(*muster.TaskSpec)
		summary string
		nearest string
		why     string
	}{
		{
			"no worker", nil, func(*muster.TaskSpec) {}, "no worker has joined", "start a worker and let it join this server", "",
		},
		{
			"never, by memory", []muster.Worker{offer("w")}, func(s *muster.TaskSpec) { s.Resources.Memory = 32 * gib },
			"no worker can run it: 1 filtered out by memory", "ask for 16GiB memory instead of 32GiB (worker w)", "needs 32GiB memory, has 16GiB",
		},
		{
			"never, by two things", []muster.Worker{offer("w")}, func(s *muster.TaskSpec) {
				s.Resources.Memory, s.Where.Tags = 32*gib, []string{"fast"}
			},
			"no worker can run it: 1 filtered out by tags", "do without the tag fast, or give it to worker w, and ask for 16GiB memory instead of 32GiB (worker w)",
			"lacks the tag fast; needs 32GiB memory, has 16GiB",
		},
		{
			"never, by two amounts", []muster.Worker{offer("w")}, func(s *muster.TaskSpec) {
				s.Resources.Memory, s.Resources.CPUs = 32*gib, 64
			},
			"no worker can run it: 1 filtered out by cpus", "ask for 4 cpus instead of 64 and 16GiB memory instead of 32GiB (worker w)",
			"needs 64 cpus, has 4; needs 32GiB memory, has 16GiB",
		},
		{
			"never, one worker lacks less", []muster.Worker{offer("a"), offer("w", func(w *muster.Worker) { w.Resources.CPUs = 64 })}, func(s *muster.TaskSpec) {
				s.Resources.Memory, s.Resources.CPUs = 32*gib, 64
			},
			"no worker can run it: 1 filtered out by cpus, 1 filtered out by memory", "ask for 16GiB memory instead of 32GiB (worker w)", "needs 32GiB memory, has 16GiB",
		},
		{
			"never, by something that no change helps", []muster.Worker{offer("w")}, func(s *muster.TaskSpec) { s.Kind, s.Resources.CPUs = "resize", 64 },
			"no worker can run it: 1 filtered out by kind", "no change of the request is enough: see what each worker lacks, or start a worker that fits",
			`does not run kind "resize", only noop`,
		},
		{
			"not now, by cpus", []muster.Worker{offer("w")}, func(s *muster.TaskSpec) { s.Resources.CPUs = 3 },
			"waits for room: 1 worker could run it, but not now", "ask for 2 cpus instead of 3 (worker w), or wait for worker w to free 1 cpus", "needs 3 cpus, 2 of 4 free",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := newEnv(t)
			for _, w := range c.workers {
				d.do(sched.Joined{Worker: w})
			}
			if len(c.workers) > 0 {
				d.submit(stage("a", func(s *muster.TaskSpec) { s.Resources.CPUs = 2 }))
			}
			job := d.submit(stage("a", c.ask))
			x, err := d.s.Explain(d.now, muster.TaskID{Job: job})
			if err != nil || x.Summary != c.summary || x.Nearest != c.nearest || x.Position != 1 {
				t.Fatalf("%+v, %v", x, err)
			}
			if len(c.workers) > 0 && x.Workers[0].Why != c.why {
				t.Fatalf("%+v", x.Workers)
			}
		})
	}
}

// TestExplainNamesDepartedWorkers checks that a worker that has left is named if it is the only one that could run a task.
func TestExplainNamesDepartedWorkers(t *testing.T) {
	t.Parallel()
	d := newEnv(t)
	big := func(w *muster.Worker) { w.Resources.CPUs = 64 }
	gone := d.join("gpu", big)
	job := d.submit(stage("a*2", func(s *muster.TaskSpec) { s.Resources.CPUs = 40 }))
	d.finish(job, 0, muster.AttemptSucceeded)
	explain := func(summary, nearest string, workers int) {
		t.Helper()
		x, err := d.s.Explain(d.now, muster.TaskID{Job: job, Num: 1})
		if err != nil || x.Summary != summary || x.Nearest != nearest || len(x.Workers) != workers {
			t.Errorf("%+v, %v", x, err)
		}
	}
	d.finish(job, 1, muster.AttemptLost, withReason(muster.WorkerShutdown))
	d.do(sched.ShutDown{Worker: gone})
	explain("no worker can run it: worker gpu could run it, but it has left", "bring back worker gpu, which has left", 1)
	d.join("small")
	explain("no worker can run it: 1 filtered out by cpus; worker gpu could run it, but it has left",
		"ask for 4 cpus instead of 40 (worker small), or bring back worker gpu, which has left", 2)
	d.rebuild()
	d.join("small")
	d.do(sched.Joined{Worker: offer("other", big), Constrained: "is hot"})
	x, err := d.s.Explain(d.now, muster.TaskID{Job: job, Num: 1})
	if err != nil || len(x.Workers) != 2 || strings.Contains(x.Nearest, "gpu") {
		t.Errorf("with another one that could run it: %+v, %v", x, err)
	}
}

func TestExplainShowsPositionAndStart(t *testing.T) {
	t.Parallel()
	d := newEnv(t)
	d.join("w", slots(2))
	job := d.submit(stage("a*10"))
	other := d.submitAs("default", 60, stage("b*3", func(s *muster.TaskSpec) { s.Resources.CPUs = 99 }))
	d.start(job, 0)
	d.now += 8_000
	d.finish(job, 0, muster.AttemptSucceeded)
	x, err := d.s.Explain(d.now, muster.TaskID{Job: job, Num: 7})
	if err != nil || x.Ahead != 3+4 || x.Position != 5 || x.Start != d.now+3*8_000 {
		t.Fatalf("%+v, %v", x, err)
	}
	if _, err := d.s.Explain(d.now, muster.TaskID{Job: job}); muster.CodeOf(err) != muster.NotFound {
		t.Fatalf("an ended task is explained: %v", err)
	}
	x, err = d.s.Explain(d.now, muster.TaskID{Job: job, Num: 1})
	if err != nil || !strings.HasPrefix(x.Summary, "offered to worker w") {
		t.Fatalf("%+v, %v", x, err)
	}
	if x, err = d.s.Explain(d.now, muster.TaskID{Job: other, Num: 2}); err != nil || x.Ahead != 2 {
		t.Fatalf("%+v, %v", x, err)
	}
}

func TestExplainSkipsWorkersThatLeft(t *testing.T) {
	t.Parallel()
	d := newEnv(t)
	d.join("here")
	d.do(sched.ShutDown{Worker: d.join("was")})
	job := d.submit(stage("a", func(s *muster.TaskSpec) { s.Resources.CPUs = 99 }))
	x, err := d.s.Explain(d.now, muster.TaskID{Job: job})
	if err != nil || len(x.Workers) != 1 || x.Workers[0].Name != "here" {
		t.Fatalf("%+v, %v", x, err)
	}
}

func TestExplainListsTheNearestWorkersFirst(t *testing.T) {
	t.Parallel()
	d := newEnv(t)
	for i := range 60 {
		d.join(fmt.Sprintf("w%02d", i), func(w *muster.Worker) { w.Kinds = []string{"script"} })
	}
	d.join("x-small")
	d.do(sched.Pause{Worker: d.join("y-paused", func(w *muster.Worker) { w.Resources.Memory = 64 * gib }), On: true})
	job := d.submit(stage("a", func(s *muster.TaskSpec) { s.Resources.Memory = 32 * gib }))
	x, err := d.s.Explain(d.now, muster.TaskID{Job: job})
	if err != nil || len(x.Workers) != 50 || x.More != 12 || x.Workers[0].Name != "y-paused" || x.Workers[1].Name != "x-small" {
		t.Fatalf("%+v, %v", x, err)
	}
}

func TestPlanShowsPlacementOfEachStage(t *testing.T) {
	t.Parallel()
	d := newEnv(t)
	d.join("w")
	plan := d.s.Plan(d.now, &muster.Spec{Project: "default", Tasks: []muster.TaskSpec{
		stage("a*3"), stage("b<a", func(s *muster.TaskSpec) { s.Resources.CPUs = 5 }),
	}})
	if len(plan) != 2 || !plan[0].Workers[0].Fits || plan[0].Summary != "can start now: 1 worker fits" {
		t.Fatalf("%+v", plan)
	}
	if b := plan[1]; b.Stage != "b" || b.State != muster.Waiting || b.Workers[0].Fits || b.Nearest != "ask for 4 cpus instead of 5 (worker w)" {
		t.Fatalf("%+v", b)
	}
	d.flush()
	if !d.last.Rows.Empty() {
		t.Fatal("a plan changed the state")
	}
}
