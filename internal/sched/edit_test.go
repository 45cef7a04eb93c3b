package sched_test

import (
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sched"
)

func (d *env) hold(job muster.JobID, on bool) {
	d.t.Helper()
	d.do(sched.Edit{Job: job, Held: &on})
}

func TestHeldJobStartsWhenReleased(t *testing.T) {
	t.Parallel()
	for _, s := range []struct {
		name   string
		stages []muster.TaskSpec
		sent   []string
	}{
		{"array", []muster.TaskSpec{stage("a*2")}, []string{"assign w 1.0#1", "assign w 1.1#1"}},
		{"gang", []muster.TaskSpec{stage("a", func(t *muster.TaskSpec) { t.Gang = &muster.Gang{Size: 2} })}, []string{"assign w 1.0#1", "assign w 1.1#1"}},
	} {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			d := newEnv(t)
			job := d.submit(s.stages...)
			d.hold(job, true)
			w := d.join("w")
			d.wantSent()
			d.heartbeat(5*minute, w)
			d.wantSent()
			x, err := d.s.Explain(d.now, muster.TaskID{Job: job})
			if err != nil || x.Summary != "is held: muster edit 1 --release lets it start" {
				t.Errorf("explained as %q, %v", x.Summary, err)
			}
			d.rebuild()
			d.join("w")
			d.wantSent()
			d.hold(job, false)
			d.wantSent(s.sent...)
			if d.store.jobs[job].Held {
				t.Error("it is still held")
			}
		})
	}
}

func TestHoldLetsRunningTasksContinue(t *testing.T) {
	t.Parallel()
	d := newEnv(t)
	d.join("w", func(w *muster.Worker) { w.Resources.Slots = 1 })
	job := d.submit(stage("a*2", func(t *muster.TaskSpec) { t.Retries.Max = 1 }), stage("b<a"))
	d.start(job, 0)
	d.hold(job, true)
	d.wantSent()
	d.finish(job, 0, muster.AttemptFailed, withExitCode(1)) // it is retried after the release
	d.advance(minute)
	d.wantTask(job, 0, muster.Queued, muster.ExitCode)
	d.hold(job, false)
	d.join("w", func(w *muster.Worker) { w.Resources.Slots = 1 })
	d.start(job, 0)
	d.finish(job, 0, muster.AttemptSucceeded)
	d.start(job, 1)
	d.hold(job, true)
	d.finish(job, 1, muster.AttemptSucceeded)
	d.wantSent() // the next stage is queued, but held
	d.wantTask(job, 2, muster.Queued, muster.NoReason)
	d.do(sched.Cancel{Job: job})
	d.wantTask(job, 2, muster.Cancelled, muster.CancelledByUser)
}

func TestQueueTimeoutRestartsAtRelease(t *testing.T) {
	t.Parallel()
	for _, size := range []string{"a", "a*3"} {
		d := newEnv(t)
		job := d.submit(stage(size, func(t *muster.TaskSpec) { t.QueueTimeout = 10 * minute }))
		d.advance(9 * minute)
		d.hold(job, true)
		d.advance(60 * minute)
		if d.job(job) != muster.JobQueued {
			t.Fatalf("%s: %s while it is held", size, d.job(job))
		}
		d.hold(job, false)
		d.advance(9 * minute)
		if d.job(job) != muster.JobQueued {
			t.Fatalf("%s: %s soon after its release", size, d.job(job))
		}
		d.advance(minute)
		if d.job(job) != muster.JobTimedOut {
			t.Fatalf("%s: %s, want its queue timeout", size, d.job(job))
		}
	}
}

func TestEditedPriorityDecides(t *testing.T) {
	t.Parallel()
	d := newEnv(t)
	first, second := d.submit(stage("a")), d.submit(stage("a"))
	urgent := 90
	d.do(sched.Edit{Job: second, Priority: &urgent})
	d.join("w", func(w *muster.Worker) { w.Resources.Slots = 1 })
	d.wantSent("assign w 2.0#1")
	if d.store.jobs[second].Priority != urgent || d.store.jobs[first].Priority != muster.DefaultPriority {
		t.Errorf("priorities %d and %d", d.store.jobs[first].Priority, d.store.jobs[second].Priority)
	}
}

func TestRefusedEdits(t *testing.T) {
	t.Parallel()
	d := newEnv(t)
	d.join("w")
	job := d.submit(stage("a"))
	high, held := muster.MaxPriority+1, true
	d.refuse(muster.Invalid, sched.Edit{Job: job, Priority: &high, Held: &held})
	if d.store.jobs[job].Held {
		t.Error("a refused edit holds the job")
	}
	d.refuse(muster.NotFound, sched.Edit{Job: 7, Held: &held})
	d.finish(job, 0, muster.AttemptSucceeded)
	d.refuse(muster.Conflict, sched.Edit{Job: job, Held: &held})
}

func TestEditWithoutChangeWritesNothing(t *testing.T) {
	t.Parallel()
	d := newEnv(t)
	job := d.submit(stage("a"))
	d.hold(job, true)
	d.hold(job, true)
	if n := len(d.last.Rows.Jobs) + len(d.last.Events); n != 0 {
		t.Errorf("it wrote %d rows and events", n)
	}
	if s := d.s.FleetSnapshot(d.now); s.All.Oldest != nil {
		t.Error("a held task counts as the one that waits longest")
	}
}
