package sched

import (
	"testing"

	"github.com/muster-dev/muster"
)

// TestAPreparedTaskSaysWhatIsDone holds that a task that waits minutes for its runtime or image says so, and
// does not look as if its worker had forgotten it.
func TestAPreparedTaskSaysWhatIsDone(t *testing.T) {
	h := assignment{worker: "w1"}
	for step, want := range map[string]string{
		"": "offered to worker w1, which has not started it yet",
		"runtime torch: compiling 3,575 of 10,059 files": "worker w1 is preparing it: runtime torch: compiling 3,575 of 10,059 files",
	} {
		if got := h.describe(&muster.Task{State: muster.Assigned, Step: step}); got != want {
			t.Errorf("with step %q it is %q", step, got)
		}
	}
}
