package sched_test

import (
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sched"
)

// TestRemovedJobsLeaveTheTotals checks which jobs can be removed, and that the totals of their project are stored without them.
func TestRemovedJobsLeaveTheTotals(t *testing.T) {
	t.Parallel()
	d := newEnv(t)
	w := d.join("w")
	first, second := d.submit(stage("a*2")), d.submitAs("other", 50, stage("b"))
	removed := func(id muster.JobID) sched.JobRemoved {
		j := d.store.jobs[id]
		return sched.JobRemoved{Job: id, Project: j.Project, Counts: j.Counts}
	}
	d.refuse(muster.Conflict, removed(first))
	for i, id := range []muster.JobID{first, first, second} {
		d.start(id, i%2)
		d.finish(id, i%2, muster.AttemptSucceeded, func(r *muster.Report) { r.LogSize = 100 })
	}
	if size := d.store.jobs[first].Usage.LogBytes; size != 2*(100+muster.LogOverhead) {
		t.Errorf("the logs of two tasks take %s", size)
	}
	third := d.submit(stage("c"))
	d.refuse(muster.Internal, sched.JobRemoved{Job: first, Project: "none", Counts: d.store.jobs[first].Counts})
	d.do(removed(first), removed(second))
	if totals := d.store.totals; len(totals) != 1 || totals["default"].Total() != 1 {
		t.Errorf("the totals are %v", totals)
	}
	if all := d.s.FleetSnapshot(d.now).All; all.Counts.Total() != 1 || all.Total.Finished != 3 {
		t.Errorf("all projects count %+v", all)
	}
	// The end of a job and its removal are not one batch.
	if err := d.s.Apply(d.now, sched.Finished{Worker: w, Report: muster.Report{Attempt: d.attempt(third, 0), Outcome: muster.AttemptSucceeded, FinishedAt: d.now}}); err != nil {
		t.Fatal(err)
	}
	d.refuse(muster.Conflict, removed(third))
	d.do(removed(third))
	if len(d.store.totals) != 0 {
		t.Errorf("the totals are %v", d.store.totals)
	}
	// A project without jobs may get some again, also in the batch that removed its last one.
	fourth := d.submit(stage("d"))
	d.finish(fourth, 0, muster.AttemptSucceeded)
	d.do(removed(fourth), sched.Submit{ID: d.s.NextJob(), Spec: &muster.Spec{Project: "default", Tasks: []muster.TaskSpec{stage("e*3")}}})
	if totals := d.store.totals; totals["default"].Total() != 3 {
		t.Errorf("the totals are %v", totals)
	}
}

// TestOnlyDepartedWorkersAreRemoved checks that Departed removes no worker that may come back with its tasks.
func TestOnlyDepartedWorkersAreRemoved(t *testing.T) {
	t.Parallel()
	d := newEnv(t)
	w := d.join("w")
	remove := sched.Remove{Worker: w, Departed: true}
	d.refuse(muster.Conflict, remove)
	d.do(sched.Disconnected{Worker: w})
	d.refuse(muster.Conflict, remove)
	d.join("w")
	d.do(sched.ShutDown{Worker: w})
	d.do(remove)
	d.refuse(muster.NotFound, remove)
	if len(d.store.workers) != 0 {
		t.Errorf("workers are left: %v", d.store.workers)
	}
}
