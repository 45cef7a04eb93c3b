package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/mustertest"
)

// TestJobOfTenThousandStages runs the largest graph that a job may have, each stage of which needs the five before it, over two kills of the
// server, and runs it again from its last stage.
func TestJobOfTenThousandStages(t *testing.T) {
	t.Parallel()
	c := mustertest.New(t, t.TempDir())
	spec := &muster.Spec{Name: "graph"}
	for i := range muster.MaxStages {
		s := muster.TaskSpec{Name: fmt.Sprintf("s%x", i), Kind: muster.KindNoop}
		for k := range min(i, 5) {
			s.Needs = append(s.Needs, spec.Tasks[i-k-1].Name)
		}
		spec.Tasks = append(spec.Tasks, s)
	}
	timed := func(what string, do func()) {
		began := time.Now()
		do()
		t.Logf("%s: %s", what, time.Since(began))
	}
	var plan []muster.Explanation
	var err error
	timed("plan", func() { plan, err = c.Client.Plan(t.Context(), spec) })
	if err != nil || len(plan) != muster.MaxStages {
		t.Fatal(len(plan), err)
	}
	var job muster.Job
	timed("submit", func() { job = c.Submit(spec) })
	last := muster.TaskID{Job: job.ID, Num: muster.MaxStages - 1}
	timed("explain", func() {
		if x, err := c.Client.Explain(t.Context(), last); err != nil || len(x.Waiting) != 5 {
			t.Fatal(x, err)
		}
	})
	c.StartWorker("w1", t.TempDir())
	for range 2 {
		c.Server.Kill()
		timed("restart", c.StartServer)
	}
	timed("run", func() { job = c.Wait(job.ID, 5*time.Minute) })
	if job.State != muster.JobSucceeded || job.Counts[muster.Succeeded] != muster.MaxStages || len(job.Groups) != muster.MaxStages {
		t.Fatalf("the job of %d stages ended as %s: %v", len(job.Groups), job.State, job.Counts)
	}
	for i, g := range job.Groups {
		for k := range min(i, 5) {
			if need := job.Groups[i-k-1]; g.StartedAt < need.FinishedAt {
				t.Fatalf("stage %s started at %s, and %s, which it needs, ended at %s", g.Name, g.StartedAt, need.Name, need.FinishedAt)
			}
		}
	}
	var again muster.Job
	timed("rerun", func() {
		again, err = c.Client.Submit(t.Context(), spec, client.SubmitOptions{Rerun: job.ID, From: "s270f"})
	})
	if err != nil {
		t.Fatal(err)
	}
	if again = c.Wait(again.ID, time.Minute); again.State != muster.JobSucceeded || again.Counts[muster.Succeeded] != muster.MaxStages {
		t.Fatalf("the rerun ended as %s: %v", again.State, again.Counts)
	}
}
