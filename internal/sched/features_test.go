package sched_test

import (
	"strings"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sched"
)

func withEnv(t *muster.TaskSpec) { t.Env = map[string]string{"A": "1"} }

// on checks that a task is assigned to a worker.
func (d *env) on(w muster.WorkerID, job muster.JobID, num int) {
	d.t.Helper()
	if t := d.task(job, num); t.Worker != w || t.State != muster.Assigned {
		d.t.Errorf("task %s is %s on %q, want it on %s", t.ID, t.State, t.Worker, w)
	}
}

// TestWorkerWithoutAFeatureGetsNoTasksThatUseIt checks this for tasks that were queued
// before anybody lacked it, too, and after a restart.
func TestWorkerWithoutAFeatureGetsNoTasksThatUseIt(t *testing.T) {
	t.Parallel()
	d := newEnv(t)
	plain := d.submit(stage("a"))
	rich := d.submit(stage("a*3", withEnv))
	retried := d.submit(stage("a", withEnv, func(t *muster.TaskSpec) { t.Retries.Max = 1 }))
	foreign := d.join("foreign", func(w *muster.Worker) {
		w.UnsupportedFeatures, w.Labels = []string{muster.FeatureEnv}, map[string]string{"dialect": "other"}
	})
	d.on(foreign, plain, 0)
	for range 2 {
		for _, id := range []muster.TaskID{{Job: rich}, {Job: rich, Num: 2}, {Job: retried}} {
			x, err := d.s.Explain(d.now, id)
			if err != nil || x.State != muster.Queued || !x.Unschedulable() || x.Workers[0].Why != "does not support: env (other worker)" || x.Workers[0].Filter != "features" {
				t.Fatalf("%s: %+v, %v", id, x, err)
			}
		}
		d.rebuild()
		d.do(sched.Joined{Worker: offer("foreign", func(w *muster.Worker) {
			w.UnsupportedFeatures, w.Labels = []string{muster.FeatureEnv}, map[string]string{"dialect": "other"}
		}), Held: []muster.AttemptID{d.attempt(plain, 0)}})
	}
	own := d.join("own")
	d.on(own, rich, 0)
	d.on(own, rich, 1)

	// It can do it from now on, and a task that waits for a worker that can is placed there.
	d.do(sched.Offered{Worker: foreign, Offer: muster.Offer{Kinds: []string{muster.KindNoop}, Resources: muster.Resources{CPUs: 4, Slots: 4}}})
	d.on(foreign, rich, 2)
	d.on(foreign, retried, 0)
}

// TestWorkerOfOneProjectGetsNoTasksOfOthers checks this for tasks that were queued before, too.
func TestWorkerOfOneProjectGetsNoTasksOfOthers(t *testing.T) {
	t.Parallel()
	d := newEnv(t)
	red, blue := d.submitAs("red", 50, stage("a")), d.submitAs("blue", 50, stage("a"))
	bound := d.join("bound", func(w *muster.Worker) { w.Projects = []string{"blue"} })
	d.on(bound, blue, 0)
	x, err := d.s.Explain(d.now, muster.TaskID{Job: red})
	if err != nil || x.Workers[0].Why != "takes tasks of project blue only" || x.Workers[0].Filter != "project" {
		t.Fatalf("%+v, %v", x, err)
	}
	plan := d.s.Plan(d.now, &muster.Spec{Project: "blue", Tasks: []muster.TaskSpec{stage("a")}})
	if !strings.HasPrefix(plan[0].Summary, "can start now") {
		t.Errorf("a plan for the project: %s", plan[0].Summary)
	}
	d.on(d.join("any"), red, 0)
}

// TestMaxTasksCountsTasksWithAndWithoutCPUs checks that max_tasks limits a worker with more cpus.
func TestMaxTasksCountsTasksWithAndWithoutCPUs(t *testing.T) {
	t.Parallel()
	d := newEnv(t)
	one := d.submit(stage("a", func(t *muster.TaskSpec) { t.Resources.CPUs = 1 }))
	two, three := d.submit(stage("a")), d.submit(stage("a", func(t *muster.TaskSpec) { t.Resources.CPUs = 1 }))
	w := d.join("w", func(w *muster.Worker) { w.Resources.MaxTasks = 2 })
	d.on(w, one, 0)
	d.on(w, two, 0)
	x, err := d.s.Explain(d.now, muster.TaskID{Job: three})
	if err != nil || x.State != muster.Queued || x.Workers[0].Why != "has 2 tasks, and runs at most 2 at once" {
		t.Fatalf("%+v, %v", x, err)
	}
}

// TestExplainListsMissingFeaturesOfARunningTask checks that the missing features are shown.
func TestExplainListsMissingFeaturesOfARunningTask(t *testing.T) {
	t.Parallel()
	d := newEnv(t)
	job := d.submit(stage("a"))
	w := d.join("w", func(w *muster.Worker) {
		w.UnsupportedFeatures = []string{muster.FeatureCancel, muster.FeatureLogs, muster.FeatureArtifacts}
	})
	at := d.attempt(job, 0)
	d.do(sched.Started{Worker: w, Attempt: at, At: d.now})
	x, err := d.s.Explain(d.now, at.Task)
	const want = "; its worker cannot be stopped: a cancel takes effect at the server only" +
		"; its worker sends the log of a task only after the task has ended; its worker sends no artifacts"
	if err != nil || !strings.HasSuffix(x.Summary, want) {
		t.Fatalf("%+v, %v", x, err)
	}
}
