package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/mustertest"
)

// smallDisk mounts an empty disk of a few MiB.
func smallDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=24m"); err != nil {
		t.Skipf("a small disk cannot be mounted on this machine: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	return dir
}

// exhaustDisk leaves no space on the disk of dir.
func exhaustDisk(t *testing.T, dir string) {
	t.Helper()
	fillDisk(t, filepath.Join(dir, "ballast"))
}

// blockTaskDirs keeps the worker with the data dir from making folders of tasks.
func blockTaskDirs(t *testing.T, dir string) {
	t.Helper()
	folder := filepath.Join(dir, "tasks")
	if err := os.RemoveAll(folder); err != nil {
		t.Fatal(err)
	}
	touch(t, folder)
}

// TestBrokenWorkerIsAvoided has one worker on which every attempt fails at once, and which therefore is always the least loaded, and a busy
// healthy one: an array without retries succeeds after a few lost attempts, and explain shows why the worker is avoided.
func TestBrokenWorkerIsAvoided(t *testing.T) {
	t.Parallel()
	for _, broken := range []struct {
		name        string
		reason      muster.Reason
		disk        func(t *testing.T) string
		breakWorker func(t *testing.T, dir string)
	}{
		{"its disk is full", muster.DiskFull, smallDisk, exhaustDisk},
		{"it cannot start anything", muster.WorkerInternal, (*testing.T).TempDir, blockTaskDirs},
	} {
		t.Run(broken.name, func(t *testing.T) {
			t.Parallel()
			dir := broken.disk(t)
			c := mustertest.New(t, t.TempDir())
			c.StartWorker("bad", dir, "--slots", "8", "--min-free-disk", "0")
			broken.breakWorker(t, dir)
			c.StartWorker("good", t.TempDir(), "--slots", "2")
			job := c.Submit(withArray(mustertest.ShellSpec("array", "sleep 0.1; echo done > file"), 40))
			if got := c.Wait(job.ID, 2*time.Minute); got.State != muster.JobSucceeded {
				t.Errorf("the job ended as %s: %v", got.State, got.Counts)
			}
			attempts := 0
			for _, task := range c.Tasks(job.ID) {
				attempts += task.Attempt
			}
			w, err := c.Client.Worker(t.Context(), "bad")
			if err != nil {
				t.Fatal(err)
			}
			if h := w.Health; attempts < 43 || attempts > 80 || h == nil || h.Reason != broken.reason || h.Score > 0.2 {
				t.Errorf("after %d attempts the health of the broken worker is %+v", attempts, h)
			}
		})
	}
}

// TestLittleFreeDisk fills the disk of a worker: it takes no new tasks and reports why, other workers run them, and with free space it takes
// tasks again.
func TestLittleFreeDisk(t *testing.T) {
	t.Parallel()
	dir := smallDisk(t)
	c := mustertest.New(t, t.TempDir())
	c.StartWorker("full", dir, "--min-free-disk", "8MiB", "--cool-down", "0")
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 18<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	awaitConstrained(t, c, "full", "disk at ", " free is under --min-free-disk 8MiB; takes tasks again above 10MiB")
	own := mustertest.ShellSpec("waits", "true")
	own.Tasks[0].Where.Workers = []string{"full"}
	waits := c.Submit(own)
	awaitExplanation(t, c, waits.ID, "free is under --min-free-disk 8MiB")
	c.StartWorker("roomy", t.TempDir())
	job := c.Submit(withArray(mustertest.ShellSpec("array", "true"), 8))
	waitSucceeded(t, c, job.ID)
	for _, task := range c.Tasks(job.ID) {
		if w, err := c.Client.Worker(t.Context(), "roomy"); err != nil || task.Worker != w.ID || task.Attempt != 1 {
			t.Errorf("task %s ran on %s as attempt %d (%v)", task.ID, task.Worker, task.Attempt, err)
		}
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	waitSucceeded(t, c, waits.ID)
	awaitConstrained(t, c, "full")
}

// TestProgramOnAFullDisk runs a program that fails because it cannot write, without reporting a reason: this is the fleet's fault, and the
// task succeeds on another worker although it has no retries.
func TestProgramOnAFullDisk(t *testing.T) {
	t.Parallel()
	dir := smallDisk(t)
	c := mustertest.New(t, t.TempDir())
	c.StartWorker("full", dir, "--slots", "8", "--min-free-disk", "0")
	job := c.Submit(mustertest.ShellSpec("writes", "head -c 30000000 /dev/zero > file 2> /dev/null || exit 7"))
	task := muster.TaskID{Job: job.ID}
	c.Await("an attempt fails for the full disk", time.Minute, func() error {
		attempts, err := c.Client.Attempts(t.Context(), task)
		if err == nil && (len(attempts) == 0 || attempts[0].Reason != muster.DiskFull || *attempts[0].ExitCode != 7) {
			err = fmt.Errorf("the attempts are %+v", attempts)
		}
		return err
	})
	c.StartWorker("roomy", t.TempDir())
	waitSucceeded(t, c, job.ID)
}
