package simtest

import (
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sched"
)

// TestBrokenWorkersAreAvoided has workers that fail every attempt at once, and therefore are always the least loaded, and a healthy one whose
// tasks take minutes. No task may fail because of this, although none has retries; the healthy worker is never idle while tasks wait; and
// repaired workers are used again.
func TestBrokenWorkersAreAvoided(t *testing.T) {
	for s := range uint64(40) {
		w := newSimulation(3000+s, nil)
		w.digest, w.faults = nil, false
		w.workers = nil
		for i := range 2 + int(s/4%2) {
			w.workers = append(w.workers, w.newWorker(i))
		}
		reason := []muster.Reason{muster.DiskFull, muster.WorkerInternal, muster.FetchFailed, muster.UploadFailed}[s%4]
		for i, wk := range w.workers {
			wk.offer.Kinds, wk.offer.Resources = []string{"process"}, muster.Resources{CPUs: 64, Slots: 1 + 15*min(i, 1)}
			wk.offer.UnsupportedFeatures, wk.offer.Projects = nil, nil
			if wk.alwaysSucceeds = true; i > 0 {
				wk.broken = reason
			}
		}
		job := w.st.NextJob()
		submitted := false
		w.extraEvents = func() []sched.Event {
			if submitted {
				return nil
			}
			submitted = true
			return []sched.Event{sched.Submit{ID: job, Spec: brokenSpec()}}
		}
		begun := w.now
		for w.now.Sub(begun) < muster.Duration(40*time.Minute) {
			if err := w.step(); err != nil {
				t.Fatalf("seed %d at %s: %v", 3000+s, w.now, err)
			}
		}
		lost, most := 0, 80
		if s%4 > 1 {
			most = 250 // until a task has succeeded, the stage may be at fault
		}
		for _, a := range w.disk.attempts {
			if a.Outcome == muster.AttemptFailed {
				lost++
			}
		}
		c := w.disk.jobs[job].Counts
		if c[muster.Failed] > 0 || c[muster.Succeeded] < 15 || lost > most*(len(w.workers)-1) {
			t.Fatalf("seed %d, %s: after 40 minutes %d tasks have succeeded and %d failed; %d attempts were lost", 3000+s, reason, c[muster.Succeeded], c[muster.Failed], lost)
		}
		if err := w.heal(); err != nil { // repairs the workers
			t.Fatalf("seed %d at %s: %v", 3000+s, w.now, err)
		}
		if j := w.disk.jobs[job]; j.State != muster.JobSucceeded {
			t.Fatalf("seed %d: the job ended as %s with %v", 3000+s, j.State, j.Counts)
		}
		helped := false
		for _, task := range w.disk.tasks {
			helped = helped || task.Worker != w.workers[0].id
		}
		if !helped {
			t.Errorf("seed %d: a repaired worker is not used again", 3000+s)
		}
	}
}

func brokenSpec() *muster.Spec {
	return &muster.Spec{Name: "job", Project: "red", Tasks: []muster.TaskSpec{{
		Name: "stage", Kind: "process", Run: &muster.Command{Argv: []string{"true"}},
		Array: &muster.Array{Ranges: []muster.Range{{First: 0, Last: 39, Step: 1}}},
	}}}
}
