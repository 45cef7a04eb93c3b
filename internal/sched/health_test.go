package sched_test

import (
	"strings"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sched"
)

// failWith ends an attempt by the fleet's fault.
func (d *env) failWith(job muster.JobID, num int, reason muster.Reason) {
	d.t.Helper()
	d.finish(job, num, muster.AttemptFailed, withReason(reason))
}

func (d *env) health(w muster.WorkerID) *muster.WorkerHealth {
	d.t.Helper()
	for _, row := range d.s.Workers(d.now) {
		if row.ID == w {
			return row.Health
		}
	}
	d.t.Fatalf("there is no worker %s", w)
	return nil
}

// A worker on which attempts fail gets tasks only if no other fits, and then none for a
// while; this is shown, explained and published.
func TestFailingWorkerIsAvoided(t *testing.T) {
	t.Parallel()
	d := newEnv(t)
	bad := d.join("bad", slots(8))
	for n := range 3 {
		job := d.submit(stage("a"))
		d.failWith(job, 0, muster.DiskFull)
		if n == 0 {
			d.join("good", slots(1))
			other := d.submit(stage("a"))
			d.wantSent("assign good 2.0#1") // though the other one has more room
			d.finish(other, 0, muster.AttemptSucceeded)
			d.do(sched.Drain{Worker: "good", On: true}, sched.ShutDown{Worker: "good"})
		}
		d.do(sched.Cancel{Job: job})
	}
	why := "is avoided until " + d.now.Add(10*second).String() + ", because attempts keep failing there (disk_full)"
	if h := d.health(bad); h == nil || h.Avoided != why || h.Until != d.now.Add(10*second) || h.Reason != muster.DiskFull || h.Attempt.String() != "4.0#1" || h.Score != 0.13 {
		t.Fatalf("its health is %+v", h)
	}
	job := d.submit(stage("a"))
	d.wantSent()
	x, err := d.s.Explain(d.now, muster.TaskID{Job: job})
	if err != nil || x.Workers[0].Filter != "state" || x.Workers[0].Why != why || x.Nearest != "wait for worker bad, which "+why {
		t.Fatalf("explained as %+v, %v", x, err)
	}
	d.advance(10 * second)
	d.wantSent("assign bad 5.0#1")
	next := d.submit(stage("a"))
	d.wantSent()
	x, err = d.s.Explain(d.now, muster.TaskID{Job: next})
	if err != nil || !strings.Contains(x.Workers[0].Why, "is on trial with task 5.0, because attempts kept failing there (disk_full)") {
		t.Fatalf("explained as %+v, %v", x, err)
	}
	d.finish(job, 0, muster.AttemptSucceeded)
	d.wantSent("assign bad 6.0#1")
	d.finish(next, 0, muster.AttemptSucceeded)
	if h := d.health(bad); h == nil || h.Avoided != "" {
		t.Fatalf("after two successes its health is %+v", h)
	}
	d.advance(40 * 60 * second)
	if h := d.health(bad); h != nil {
		t.Fatalf("after 40 minutes its health is %+v", h)
	}
}

func TestAvoidanceIsPublishedAndEndsByAnAdministrator(t *testing.T) {
	t.Parallel()
	d := newEnv(t)
	d.join("bad", slots(8))
	job := d.submit(stage("a*3"))
	var reasons []string
	for num := range 3 {
		d.failWith(job, num, muster.WorkerInternal)
		for _, ev := range d.last.Events {
			if ev.Type == muster.EventWorker {
				reasons = append(reasons, ev.Constrained)
			}
		}
	}
	if len(reasons) != 1 || !strings.HasPrefix(reasons[0], "is avoided until ") {
		t.Fatalf("events have %q", reasons)
	}
	d.advance(2 * second)
	d.wantSent()
	d.do(sched.Pause{Worker: "bad"}) // as muster workers resume
	d.wantSent("assign bad 1.0#2", "assign bad 1.1#2", "assign bad 1.2#2")
	if h := d.health("bad"); h != nil {
		t.Fatalf("its health is %+v", h)
	}
}

// Failures that the stage may cause do not count against the worker until a task of the
// stage has succeeded.
func TestTaskErrorsDoNotAffectWorkerHealth(t *testing.T) {
	t.Parallel()
	d := newEnv(t)
	d.join("w", slots(8))
	job := d.submit(stage("a*8"))
	for num := range 4 {
		d.failWith(job, num, muster.ImagePull)
	}
	if h := d.health("w"); h != nil {
		t.Fatalf("its health is %+v", h)
	}
	d.finish(job, 4, muster.AttemptSucceeded)
	d.failWith(job, 5, muster.ImagePull)
	if h := d.health("w"); h == nil || h.Score != 0.5 {
		t.Fatalf("its health is %+v", h)
	}
	own := d.submit(stage("b"))
	d.start(own, 0)
	d.finish(own, 0, muster.AttemptFailed, withExitCode(1))
	d.finish(job, 6, muster.AttemptSucceeded)
	if h := d.health("w"); h != nil {
		t.Fatalf("after ends that are not its fault its health is %+v", h)
	}
}

// A task does not fail for good because of one worker while another could run it, but does
// if there is no other, or if the task may crash workers.
func TestCrashLimitCountsWorkers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		others int // that are busy
		reason muster.Reason
		state  muster.TaskState
	}{
		{"another is busy", 1, muster.WorkerInternal, muster.Queued},
		{"there is no other", 0, muster.WorkerInternal, muster.Failed},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := newEnv(t)
			for range c.others {
				d.join("busy", slots(1))
				d.submit(stage("long"))
			}
			d.join("bad", slots(1))
			job := d.submit(stage("a"))
			for range 7 {
				for d.task(job, 0).State == muster.Queued {
					d.advance(10 * second)
					d.do(sched.Renewed{Worker: "bad"})
					if c.others > 0 {
						d.do(sched.Renewed{Worker: "busy", Held: []muster.AttemptID{d.attempt(1, 0)}})
					}
					if d.now > 1_000_000+muster.Time(24*3600*1000) {
						t.Fatal("it never starts")
					}
				}
				if d.task(job, 0).State.Final() {
					break
				}
				d.failWith(job, 0, c.reason)
			}
			if got := d.task(job, 0); got.State != c.state || c.state == muster.Failed && (got.Reason != muster.CrashLimit || got.Attempt != 6) {
				t.Fatalf("after %d attempts it is %s (%s)", got.Attempt, got.State, got.Reason)
			}
			if c.others > 0 {
				d.finish(1, 0, muster.AttemptSucceeded)
				for d.task(job, 0).State == muster.Queued {
					d.advance(10 * second)
					d.do(sched.Renewed{Worker: "busy"})
				}
				if got := d.task(job, 0); got.Worker != "busy" {
					t.Fatalf("when the other worker is free, the task is %s on %q", got.State, got.Worker)
				}
			}
		})
	}
}
