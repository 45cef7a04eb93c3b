//go:build linux

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/mustertest"
)

// TestDataDirDeleted deletes the data dir of a worker that was killed with a running task: the task, which
// no worker can recover, is killed long before its lease ends, and its supervisor ends, too.
func TestDataDirDeleted(t *testing.T) {
	t.Parallel()
	c := mustertest.New(t, t.TempDir())
	dir := filepath.Join(t.TempDir(), "data")
	w := c.StartWorker("w1", dir)
	job := c.Submit(withGrace(mustertest.ShellSpec("left", "trap '' TERM; setsid sleep 3600 & sleep 3600"), time.Hour))
	c.AwaitRunning(job.ID, 1)
	w.Kill()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	awaitNoTasks(t, c, dir)
	c.Await("the shim has ended", time.Minute, func() error {
		if pids := mustertest.ShimPIDs(t, dir); len(pids) > 0 {
			return fmt.Errorf("%v are running", pids)
		}
		return nil
	})
}

// TestDataDirCopied starts a worker on a copy of the data dir of one that runs tasks: it exits with an error that says what to do, and the
// tasks continue. Without the reference to the original the copy is another worker.
func TestDataDirCopied(t *testing.T) {
	t.Parallel()
	c := mustertest.New(t, t.TempDir())
	top := t.TempDir()
	dir, copied, releaseFile := filepath.Join(top, "data"), filepath.Join(top, "copy"), filepath.Join(t.TempDir(), "gate")
	c.StartWorker("w1", dir, "--slots", "2", "--allow-read", filepath.Dir(releaseFile))
	job := c.Submit(withArray(mustertest.ShellSpec("original", numberedLinesScript(releaseFile)), 2))
	c.AwaitRunning(job.ID, 2)
	if out, err := exec.Command("cp", "-a", dir, copied).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	again := c.LaunchWorkerProgram(mustertest.Program(t), "w1", copied)
	select {
	case <-again.Done():
	case <-time.After(time.Minute):
		t.Fatal("the worker of the copy runs")
	}
	if log := again.Log(); !strings.Contains(log, "is a copy of one that is in use on this machine") || !strings.Contains(log, "identity.json") {
		t.Errorf("the worker on the copy printed %s", log)
	}
	for _, name := range []string{"shim", "identity.json"} {
		if err := os.RemoveAll(filepath.Join(copied, name)); err != nil {
			t.Fatal(err)
		}
	}
	c.StartWorker("w2", copied, "--slots", "2")
	other := mustertest.ShellSpec("other", "echo here")
	other.Tasks[0].Where = muster.Where{Workers: []string{"w2"}}
	if got := c.Wait(c.Submit(other).ID, time.Minute); got.State != muster.JobSucceeded {
		t.Errorf("the job of the second worker ended as %s", got.State)
	}
	touch(t, releaseFile)
	c.Wait(job.ID, time.Minute)
	for _, task := range c.Tasks(job.ID) {
		if task.State != muster.Succeeded || task.Attempt != 1 {
			t.Errorf("task %s is %s with attempt %d: %s", task.ID, task.State, task.Attempt, task.Message)
		}
		checkNumberedOutput(t, c, task.ID)
	}
}
