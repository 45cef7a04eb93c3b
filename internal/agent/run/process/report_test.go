package process

import (
	"errors"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
)

// TestOutOfMemoryCause checks that a killed task does not count as out of memory because another process of the
// machine ran out of memory, if the task has a control group that counts.
func TestOutOfMemoryCause(t *testing.T) {
	for _, c := range []struct {
		kills *int // in the task's group
		want  muster.Reason
	}{
		{nil, muster.OutOfMemory},
		{new(0), muster.Signal},
		{new(1), muster.OutOfMemory},
	} {
		a := &Attempt{
			Task:  &run.Task{Spec: &muster.TaskSpec{}},
			exit:  &run.Exit{Code: 137, Signal: "SIGKILL", OOM: true},
			stats: run.CgroupStats{OOMKills: c.kills},
		}
		if f, ok := errors.AsType[*run.TaskError](a.exitFailure()); !ok || f.Reason != c.want {
			t.Errorf("with %v kills in its group it is %v", c.kills, a.exitFailure())
		}
	}
}

// TestContainerWithLikelyOOM checks that a killed container counts as out of memory even if its engine missed that, and that others do not.
func TestContainerWithLikelyOOM(t *testing.T) {
	for code, want := range map[int]muster.Reason{137: muster.OutOfMemory, 1: muster.ExitCode} {
		a := &Attempt{Task: &run.Task{Spec: &muster.TaskSpec{}}, container: &run.Container{}, exit: &run.Exit{Code: code}, stats: run.CgroupStats{LikelyOOM: true}}
		if code == 137 {
			a.exit.Signal = "SIGKILL"
		}
		if f, ok := errors.AsType[*run.TaskError](a.exitFailure()); !ok || f.Reason != want {
			t.Errorf("with exit code %d it is %v", code, a.exitFailure())
		}
	}
}

// TestShortTaskHasNoAverage checks that no average is computed of a time that is shorter than the steps of the counters.
func TestShortTaskHasNoAverage(t *testing.T) {
	for wall, want := range map[time.Duration]float64{time.Millisecond: 0, 99 * time.Millisecond: 0, 100 * time.Millisecond: 0.25} {
		a := &Attempt{exit: &run.Exit{Wall: wall, CPU: 25 * time.Millisecond}}
		if u := a.usage(); u.CPUAvg != want || u.CPUSeconds != 0.025 {
			t.Errorf("%s: %+v, want the average %v", wall, u, want)
		}
	}
}
