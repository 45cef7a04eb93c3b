package engine_test

import (
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/link"
)

// TestProgressIsReadBeforeItIsWritten checks that readers have the latest progress of a running task, though
// it costs no commit.
func TestProgressIsReadBeforeItIsWritten(t *testing.T) {
	r := start(t)
	p := r.connect(t)
	id := muster.TaskID{Job: r.submit(t, 1), Num: 0}
	a := p.next(t, "offers", assigns).Assign[0].Attempt
	handle := func(f *link.ToServer) {
		t.Helper()
		if err := p.Handle(t.Context(), f); err != nil {
			t.Fatal(err)
		}
	}
	read := func() (stored, latest muster.Task) {
		t.Helper()
		stored, err := r.store.Task(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		latest = stored
		r.ApplyProgress(&latest)
		return stored, latest
	}
	handle(&link.ToServer{Started: []link.Started{{Attempt: a, At: 1}}})
	if _, err := r.Workers(t.Context()); err != nil { // the start is committed: its row would take progress along
		t.Fatal(err)
	}
	share := 0.5
	handle(&link.ToServer{Progress: []muster.Progress{{Attempt: a, Progress: &share, Metrics: map[string]float64{"loss": 2}}}})
	var stored, latest muster.Task
	for deadline := time.Now().Add(time.Minute); latest.Progress == nil && time.Now().Before(deadline); {
		if _, err := r.Workers(t.Context()); err != nil {
			t.Fatal(err)
		}
		stored, latest = read()
	}
	if latest.Progress == nil || *latest.Progress != share || latest.Metrics["loss"] != 2 {
		t.Errorf("readers have %v %v", latest.Progress, latest.Metrics)
	}
	if stored.Progress != nil {
		t.Errorf("the progress is written already: %v", *stored.Progress)
	}
	handle(&link.ToServer{Finished: []muster.Report{succeeded(a)}})
	p.next(t, "the acknowledgement", func(f *link.ToWorker) bool { return len(f.FinishedAck) > 0 })
	if stored, latest = read(); stored.Progress == nil || *stored.Progress != share || latest.State != muster.Succeeded {
		t.Errorf("at its end the row has %v, readers see %s", stored.Progress, latest.State)
	}
}
