package fleet_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/dialect/fleet"
)

// Lines beyond the limit of a log are dropped, also after a restart.
func TestLogBound(t *testing.T) {
	w := newEnv(t, nil)
	worker := w.register(newFacts("one"))
	job := w.submit(nil)
	task := w.waitOffered(worker)
	if err := task.Log(t.Context(), "first", "second", strings.Repeat("x", run.DefaultLogCap), "dropped"); err != nil {
		t.Fatal(err)
	}
	if err := task.Log(t.Context(), "dropped too"); err != nil {
		t.Fatal(err)
	}
	w.stop()
	w.start()
	task = w.fleet.Task(task.ID())
	if err := task.Log(t.Context(), "dropped after a restart"); err != nil {
		t.Fatal(err)
	}
	if err := task.Finish(t.Context(), fleet.FinalReport{Outcome: muster.AttemptSucceeded}); err != nil {
		t.Fatal(err)
	}
	w.waitState(job, muster.Succeeded)
	var got []string
	for line, err := range w.client.Logs(t.Context(), muster.TaskID{Job: job.ID}, client.LogOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, string(line.Data[:min(len(line.Data), 100)]))
	}
	if want := []string{"first\n", "second\n", "output truncated\n"}; !slices.Equal(got, want) {
		t.Errorf("the log is %q, want %q", got, want)
	}
}
