package sched_test

import (
	"strings"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sched"
)

const minute = 60 * second

func cpus(n float64) func(*muster.TaskSpec) {
	return func(t *muster.TaskSpec) { t.Resources.CPUs = n }
}

// newStarvedEnv returns an env with workers of 4 cpus, on each of which two tasks of job 1
// run that need 2, with many more of them queued, and a job that needs 4 and was overtaken
// by one of them, half a minute after it was submitted and half a minute ago.
func newStarvedEnv(t *testing.T, workers ...string) (d *env, big muster.JobID) {
	t.Helper()
	d = newEnv(t)
	for _, w := range workers {
		d.join(w)
	}
	d.submit(stage("small*1000", cpus(2), func(t *muster.TaskSpec) { t.Where.ExcludeTags = []string{"dear"} }))
	big = d.submit(stage("big", cpus(4)))
	d.heartbeatAll(30 * second)
	d.finish(1, 0, muster.AttemptSucceeded)
	d.wantTask(1, 2*len(workers), muster.Assigned, muster.NoReason)
	d.heartbeatAll(29 * second)
	return d, big
}

// wantReserved checks whether the worker is reserved for a task.
func (d *env) wantReserved(worker string, job muster.JobID, num int, want bool) {
	d.t.Helper()
	x, err := d.s.Explain(d.now, muster.TaskID{Job: job, Num: num})
	if err != nil {
		d.t.Fatal(err)
	}
	if got := strings.HasSuffix(x.Summary, "; worker "+worker+" is reserved for it"); got != want {
		d.t.Fatalf("worker %s is reserved for task %s: %t; %s", worker, x.Task, got, x.Summary)
	}
}

// heartbeatAll advances the time with heartbeats of every worker.
func (d *env) heartbeatAll(by muster.Duration) {
	d.t.Helper()
	const every = 10 * second
	for ; by > 0; by -= every {
		d.advance(min(by, every))
		for _, w := range d.s.Workers(d.now) {
			var held []muster.AttemptID
			for _, t := range d.store.snapshot().Tasks {
				if t.State.HoldsResources() && t.Grant != nil && t.Worker == w.ID {
					held = append(held, muster.AttemptID{Task: t.ID, N: t.Attempt})
				}
			}
			d.do(sched.Renewed{Worker: w.ID, Held: held})
		}
	}
}

// workerReason returns the reason of a worker in the explanation of a task.
func (d *env) workerReason(job muster.JobID, num int, worker string) string {
	d.t.Helper()
	x, err := d.s.Explain(d.now, muster.TaskID{Job: job, Num: num})
	if err != nil {
		d.t.Fatal(err)
	}
	for _, v := range x.Workers {
		if v.Name == worker {
			return v.Why
		}
	}
	d.t.Fatalf("no verdict for worker %s: %+v", worker, x)
	return ""
}

func TestStarvingTaskGetsAWorker(t *testing.T) {
	t.Parallel()
	d, big := newStarvedEnv(t, "a") // 1.1 and 1.2 run
	d.wantReserved("a", big, 0, false)
	d.heartbeatAll(second)
	d.wantReserved("a", big, 0, true)
	if why := d.workerReason(1, 9, "a"); why != "is reserved for 2.0, which has waited for longer" {
		t.Errorf("the reason for the small task is: %s", why)
	}
	d.finish(1, 1, muster.AttemptSucceeded)
	d.wantSent() // nothing new of that priority
	urgent := d.submitAs("default", 90, stage("urgent", cpus(2)))
	d.wantSent("assign a 3.0#1") // a higher one may
	d.finish(urgent, 0, muster.AttemptSucceeded)
	d.finish(1, 2, muster.AttemptSucceeded)
	d.wantSent("assign a 2.0#1")
	d.finish(big, 0, muster.AttemptSucceeded)
	d.wantSent("assign a 1.3#1", "assign a 1.4#1")
}

func TestReservationEndsWithItsTask(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		do   func(d *env, big muster.JobID)
		want []string
	}{
		"cancelled": {func(d *env, big muster.JobID) { d.do(sched.Cancel{Job: big}) }, []string{"assign a 1.5#1"}},
		"elsewhere": {func(d *env, _ muster.JobID) {
			d.join("c", func(w *muster.Worker) { w.Tags = []string{"dear"} })
		}, []string{"assign c 2.0#1", "assign a 1.5#1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, big := newStarvedEnv(t, "a", "b")
			d.heartbeatAll(second)
			d.wantReserved("a", big, 0, true)
			d.finish(1, 2, muster.AttemptSucceeded) // on a
			d.wantSent()
			c.do(d, big)
			d.wantSent(c.want...)
		})
	}
}

// TestReservationMovesWhenAWorkerLeaves checks that a worker that cannot run the task
// is not reserved any more, and another one is.
func TestReservationMovesWhenAWorkerLeaves(t *testing.T) {
	t.Parallel()
	for name, ev := range map[string]sched.Event{
		"lost":   sched.Disconnected{Worker: "a"},
		"paused": sched.Pause{Worker: "a", On: true},
		"small":  sched.Joined{Worker: offer("a", func(w *muster.Worker) { w.Resources.CPUs = 3 })},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, big := newStarvedEnv(t, "a", "b")
			d.heartbeatAll(second)
			d.wantReserved("a", big, 0, true)
			d.do(ev)
			d.wantReserved("b", big, 0, true)
		})
	}
}

// TestFewWorkersAreReserved checks that a task that fits nowhere reserves nothing, and
// that of four workers one at the most is reserved.
func TestFewWorkersAreReserved(t *testing.T) {
	t.Parallel()
	d, _ := newStarvedEnv(t, "a", "b", "c", "d")
	huge := d.submit(stage("huge", cpus(100)))
	d.submit(stage("other", cpus(3)))
	d.submitAs("rich", muster.DefaultPriority, stage("big", cpus(4)))
	d.heartbeatAll(3 * minute)
	var reserved []string
	for _, g := range d.store.snapshot().Groups {
		id := muster.TaskID{Job: g.Job, Num: g.First + g.Materialized}
		if x, err := d.s.Explain(d.now, id); err != nil {
			t.Fatal(err)
		} else if strings.Contains(x.Summary, "is reserved for it") {
			reserved = append(reserved, id.String())
		}
	}
	if len(reserved) != 1 || reserved[0] == (muster.TaskID{Job: huge}).String() {
		t.Errorf("reserved workers: %v of 4", reserved)
	}
}

// TestHigherPriorityTakesTheReservation checks that of two starving tasks the one with the
// higher priority is served first.
func TestHigherPriorityTakesTheReservation(t *testing.T) {
	t.Parallel()
	d, big := newStarvedEnv(t, "a")
	low := d.submitAs("default", 10, stage("low", cpus(4)))
	d.do(sched.Cancel{Job: big})
	d.heartbeatAll(30 * second)
	high := d.submitAs("default", 90, stage("high", cpus(4)))
	d.finish(1, 1, muster.AttemptSucceeded)
	d.heartbeatAll(30 * second)
	d.wantReserved("a", low, 0, true)
	d.heartbeatAll(30 * second)
	d.wantReserved("a", low, 0, false)
	d.wantReserved("a", high, 0, true)
	d.finish(1, 2, muster.AttemptSucceeded)
	d.finish(1, 3, muster.AttemptSucceeded)
	d.wantSent("assign a 4.0#1")
}

// TestEndlessTaskDoesNotBlockAReservation checks that another worker is reserved when
// the one that was chosen first turns out to be busy forever.
func TestEndlessTaskDoesNotBlockAReservation(t *testing.T) {
	t.Parallel()
	d, big := newStarvedEnv(t, "a", "b") // a runs 1.2 and 1.4, b 1.1 and 1.3
	d.heartbeatAll(second)
	d.wantReserved("a", big, 0, true)
	for range 20 { // on b everything ends after a while, on a nothing does
		for _, r := range d.store.snapshot().Tasks {
			if r.State.HoldsResources() && r.Worker == "b" {
				d.finish(r.ID.Job, r.ID.Num, muster.AttemptSucceeded)
				break
			}
		}
		if d.task(big, 0).State != muster.Queued {
			return
		}
		d.heartbeatAll(20 * second)
	}
	t.Error("it waits for the endless one")
}

// TestUnusableReservationEnds checks that a task that never fits does not block the reservations of
// others.
func TestUnusableReservationEnds(t *testing.T) {
	t.Parallel()
	d := newEnv(t)
	d.join("a")
	d.join("b")
	forever := d.submit(stage("forever*2", cpus(1))) // one on each
	d.submit(stage("small*1000", cpus(1)))
	whole := d.submit(stage("whole", cpus(4)))
	half := d.submit(stage("half", cpus(3)))
	for range 300 {
		for _, r := range d.store.snapshot().Tasks {
			if r.State.HoldsResources() && r.ID.Job != forever {
				d.finish(r.ID.Job, r.ID.Num, muster.AttemptSucceeded)
				break
			}
		}
		d.heartbeatAll(10 * second)
		if d.task(half, 0).State != muster.Queued {
			d.wantTask(whole, 0, muster.Queued, muster.NoReason)
			return
		}
	}
	t.Error("it waits for the other one")
}

// TestShortTasksBackfillReservedWorkers checks that a reserved worker with a long task is not left idle, and that this ends with the long
// task.
func TestShortTasksBackfillReservedWorkers(t *testing.T) {
	t.Parallel()
	d := newEnv(t)
	d.join("a")
	long := d.submit(stage("long", cpus(1)))
	d.start(long, 0)
	d.heartbeatAll(10 * minute)
	small := d.submit(stage("small*1000", cpus(3)))
	big := d.submit(stage("big", cpus(4)))
	next := 0
	one := func() {
		t.Helper()
		d.start(small, next)
		d.heartbeatAll(10 * second)
		d.finish(small, next, muster.AttemptSucceeded)
		next++
	}
	for range 20 {
		one()
	}
	d.wantReserved("a", big, 0, true)
	d.wantTask(small, next, muster.Assigned, muster.NoReason)
	d.finish(long, 0, muster.AttemptSucceeded)
	for d.task(big, 0).State == muster.Queued && next < 200 {
		one()
	}
	d.wantTask(big, 0, muster.Assigned, muster.NoReason)
}

// TestLongQueueIsNotCounted checks that an explanation does not look at every
// queued task.
func TestLongQueueIsNotCounted(t *testing.T) {
	t.Parallel()
	s := sched.New(sched.Config{})
	spec := noops(1)
	for range 20_000 {
		apply(t, s, 1, sched.Submit{ID: s.NextJob(), Spec: spec})
	}
	for job, want := range map[muster.JobID]int{1: 0, 500: 499, 10_000: 9_999} {
		if x, err := s.Explain(1, muster.TaskID{Job: job}); err != nil || x.Ahead != want || x.AheadTruncated {
			t.Errorf("job %s has %d ahead, beyond: %t, %v", job, x.Ahead, x.AheadTruncated, err)
		}
	}
	if x, err := s.Explain(1, muster.TaskID{Job: 20_000}); err != nil || x.Ahead != 10_000 || !x.AheadTruncated {
		t.Errorf("the last has %d ahead, beyond: %t, %v", x.Ahead, x.AheadTruncated, err)
	}
}
