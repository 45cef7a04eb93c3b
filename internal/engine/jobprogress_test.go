package engine_test

import (
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/link"
)

// TestJobProgress checks that readers have a job's progress with what its running tasks report, which falls when an attempt
// is lost, is not counted twice when a task ends, and is there after a restart.
func TestJobProgress(t *testing.T) {
	r := start(t)
	p := r.connect(t)
	id := r.submit(t, 4)
	a := map[int]muster.AttemptID{}
	for len(a) < 2 {
		for _, x := range p.next(t, "offers", assigns).Assign {
			a[x.Attempt.Task.Num] = x.Attempt
		}
	}
	handle := func(f *link.ToServer) {
		t.Helper()
		if err := p.Handle(t.Context(), f); err != nil {
			t.Fatal(err)
		}
	}
	await := func(desc string, want float64) {
		t.Helper()
		var got float64
		for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
			if _, err := r.Workers(t.Context()); err != nil { // what was handled before is committed then
				t.Fatal(err)
			}
			job, err := r.store.Job(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			r.ApplyJobProgress(&job)
			if got = *job.Progress; got == want {
				return
			}
		}
		t.Fatalf("%s: the job's progress is %g, not %g", desc, got, want)
	}
	await("nothing is reported", 0)
	half, most := 0.5, 0.75
	handle(&link.ToServer{ // one frame: its rows are written with the progress
		Started:  []link.Started{{Attempt: a[0], At: 1}, {Attempt: a[1], At: 1}},
		Progress: []muster.Progress{{Attempt: a[0], Progress: &half}, {Attempt: a[1], Progress: &half}},
	})
	await("two are half done", 0.25)
	handle(&link.ToServer{Progress: []muster.Progress{{Attempt: a[1], Progress: &most}}})
	await("one goes further", 0.3125)
	handle(&link.ToServer{Finished: []muster.Report{succeeded(a[0])}})
	await("one has ended", 0.4375)
	handle(&link.ToServer{Progress: []muster.Progress{{Attempt: a[1], Step: new("epoch 7")}}})
	await("a step does not change the progress", 0.4375)
	r = r.restart(t)
	await("after a restart the rows count that were written", 0.375)
	r.connect(t) // the worker has lost the attempt
	await("the attempt is lost", 0.25)
}
