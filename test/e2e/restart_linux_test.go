package e2e

import (
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/mustertest"
)

// TestRestartedWorkerTakesTasksAtOnce kills a worker that runs a task while another one waits for it. The one that is
// started in its place takes that without a rejection, though tools of its machine would take long to answer, and what
// the first task has reserved of the disk is not offered a second time.
func TestRestartedWorkerTakesTasksAtOnce(t *testing.T) {
	t.Parallel()
	dir := smallDisk(t)
	c := mustertest.New(t, t.TempDir())
	w := c.StartWorker("w1", dir, "--slots", "4")
	on := func(spec *muster.Spec) *muster.Spec {
		spec.Tasks[0].Where.Workers = []string{"w1"}
		return spec
	}
	holds := mustertest.ShellSpec("holds", "sleep 1000")
	holds.Tasks[0].Resources.Disk = 12 << 20
	c.AwaitRunning(c.Submit(on(holds)).ID, 1)
	free := func() muster.Size {
		t.Helper()
		row, err := c.Client.Worker(t.Context(), "w1")
		if err != nil {
			t.Fatal(err)
		}
		return row.Free.Disk
	}
	before := free()
	for n := range 3 {
		w.Kill()
		c.AwaitWorkerState("w1", muster.WorkerUnreachable)
		waits := c.Submit(on(mustertest.ShellSpec("waits", "true")))
		start := time.Now()
		w = c.StartWorker("w1", dir, "--slots", "4")
		waitSucceeded(t, c, waits.ID)
		t.Logf("life %d: the task that waited was done after %s", n+2, time.Since(start).Round(time.Millisecond))
		if task := c.Tasks(waits.ID)[0]; task.Attempt != 1 {
			attempts, err := c.Client.Attempts(t.Context(), task.ID)
			t.Errorf("it took %d attempts: %+v %v", task.Attempt, attempts, err)
		}
		if after := free(); after > before+before/4 {
			t.Errorf("%s of the disk were free, and after a restart %s", before, after)
		}
	}
	for _, task := range c.Tasks(1) {
		if task.Attempt != 1 || task.State != muster.Running {
			t.Errorf("the task that runs is %s at attempt %d", task.State, task.Attempt)
		}
	}
}
