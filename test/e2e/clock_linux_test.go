package e2e

import (
	"fmt"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/mustertest"
)

// TestClockStepped sets the machine's clock forward and back by an hour while a task with a much shorter lease and timeout runs: nothing is
// lost, killed or delayed. It needs a separate machine, because it sets the machine's clock.
func TestClockStepped(t *testing.T) {
	if os.Getenv("MUSTER_TEST_SETS_CLOCK") == "" {
		t.Skip("MUSTER_TEST_SETS_CLOCK is not set: this test sets the machine's clock")
	}
	const lines = 40
	c := mustertest.New(t, t.TempDir())
	dir := t.TempDir()
	w := c.StartWorker("w1", dir)
	talk := withGrace(mustertest.ShellSpec("talk", fmt.Sprintf(`i=0; while [ $i -lt %d ]; do i=$((i+1)); echo line $i; sleep 0.2; done`, lines)), 3*time.Second)
	talk.Tasks[0].Timeout = muster.Duration(5 * time.Minute)
	job := c.Submit(talk)
	c.AwaitRunning(job.ID, 1)
	start, noon := boot(t), time.Now()
	restore := func() { setClock(t, noon.Add(boot(t)-start)) }
	t.Cleanup(restore)
	for _, step := range []time.Duration{time.Hour, -time.Hour} {
		setClock(t, noon.Add(boot(t)-start+step))
		more := c.Submit(mustertest.ShellSpec("more", "sleep 1; echo hello"))
		if got := c.Wait(more.ID, 20*time.Second); got.State != muster.JobSucceeded {
			t.Errorf("with the clock set by %v a task ended as %s", step, got.State)
		}
		w.Kill()
		w = c.StartWorker("w1", dir) // a new process sees the new time
	}
	restore()
	if got := c.Wait(job.ID, time.Minute); got.State != muster.JobSucceeded {
		t.Errorf("the job ended as %s: %+v", got.State, c.Tasks(job.ID)[0])
	}
	if task := c.Tasks(job.ID)[0]; task.Attempt != 1 || c.Output(task.ID) != numberedLines(lines) {
		t.Errorf("after attempt %d the log is %q", task.Attempt, c.Output(task.ID))
	}
}

// boot is the time since the machine started, which cannot be set.
func boot(t *testing.T) time.Duration {
	t.Helper()
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		t.Fatal(err)
	}
	return time.Duration(ts.Nano())
}

func setClock(t *testing.T, to time.Time) {
	t.Helper()
	ts, err := unix.TimeToTimespec(to)
	if err == nil {
		err = unix.ClockSettime(unix.CLOCK_REALTIME, &ts)
	}
	if err != nil {
		t.Fatalf("the clock cannot be set: %v", err)
	}
}
