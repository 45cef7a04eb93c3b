package sched

import (
	"testing"

	"github.com/muster-dev/muster"
)

// TestPreparingTaskReportsItsStep checks that an assigned task shows the preparation of its runtime or image, which can
// take minutes.
func TestPreparingTaskReportsItsStep(t *testing.T) {
	for step, want := range map[string]string{
		"":                                 "offered to worker w1, which has not started it yet",
		"runtime torch: compiling modules": "worker w1 is preparing it: runtime torch: compiling modules",
	} {
		w := newWorker(muster.Worker{Name: "w1"})
		w.connected, w.responsive = true, true
		held := task{row: muster.Task{State: muster.Assigned, Step: step}, worker: w}
		if got := held.describe(); got != want {
			t.Errorf("with step %q it is %q", step, got)
		}
	}
}
