package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/link/linktest"
	"github.com/muster-dev/muster/internal/mustertest"
)

// attemptOutput reads what one attempt wrote to stdout and is on the server by now.
func attemptOutput(t *testing.T, c *mustertest.Cluster, id muster.AttemptID) string {
	t.Helper()
	var b strings.Builder
	for line, err := range c.Client.Logs(t.Context(), id.Task, client.LogOptions{Attempt: id.N, Stream: client.Stdout}) {
		if err != nil {
			t.Fatalf("logs of %s: %v", id, err)
		}
		b.Write(line.Data)
	}
	return b.String()
}

// TestLogDiskFull fills the disk of the server's logs for longer than the leases of tasks: a task that prints and one that does not continue,
// results arrive, the worker stays connected, and the log is complete once there is space.
func TestLogDiskFull(t *testing.T) {
	t.Parallel() // it mostly waits
	if testing.Short() {
		t.Skip("real processes are not for -short")
	}
	data := t.TempDir()
	logs := filepath.Join(data, "logs")
	if err := os.Mkdir(logs, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", logs, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("a small disk cannot be mounted on this machine: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(logs, syscall.MNT_DETACH) })
	c := mustertest.New(t, data)
	startsDir := mustertest.SharedDir(t)
	releaseFile, quietReleaseFile := filepath.Join(startsDir, "gate"), filepath.Join(startsDir, "quiet")
	c.StartWorker("w1", t.TempDir(), "--slots", "8")

	quiet := c.Submit(withGrace(mustertest.ShellSpec("quiet", fmt.Sprintf("while [ ! -e %s ]; do sleep 0.1; done", quietReleaseFile)), lease))
	chatty := c.Submit(withGrace(mustertest.ShellSpec("chatty", fmt.Sprintf(
		`i=0; while i=$((i+1)); echo line $i; [ $MUSTER_ATTEMPT = 1 ] && [ ! -e %s ]; do [ $i -lt 60000 ] || sleep 0.1; done; echo end`, releaseFile)), lease))
	c.AwaitRunning(quiet.ID, 1)
	c.Await("the disk of the logs is full", time.Minute, func() error {
		var st syscall.Statfs_t
		if err := syscall.Statfs(logs, &st); err != nil || st.Bavail > 0 {
			return fmt.Errorf("%d blocks are free (%w)", st.Bavail, err)
		}
		return nil
	})
	full := time.Now()
	before := strings.Count(c.Server.Log(), "worker connected")
	short := c.Submit(mustertest.ShellSpec("short", "echo its output is late"))
	if job := c.Wait(short.ID, time.Minute); job.State != muster.JobSucceeded {
		t.Errorf("the result of a task that printed is %s: %v", job.State, job.Counts)
	}
	time.Sleep(time.Until(full.Add(2 * lease))) // the length of the fault, not a wait for something
	touch(t, quietReleaseFile)
	if job := c.Wait(quiet.ID, time.Minute); job.State != muster.JobSucceeded {
		t.Errorf("the task that prints nothing ended as %s: %v", job.State, job.Counts)
	}
	if n := strings.Count(c.Server.Log(), "worker connected") - before; n > 3 {
		t.Errorf("the worker connected %d times while the disk was full", n)
	}

	if err := syscall.Mount("tmpfs", logs, "tmpfs", syscall.MS_REMOUNT, "size=64m"); err != nil {
		t.Fatal(err)
	}
	touch(t, releaseFile)
	if job := c.Wait(chatty.ID, time.Minute); job.State != muster.JobSucceeded {
		t.Errorf("the task that prints ended as %s: %v", job.State, job.Counts)
	}
	checkNumberedOutput(t, c, muster.TaskID{Job: chatty.ID})
	if out := c.Output(muster.TaskID{Job: short.ID}); out != "its output is late\n" {
		t.Errorf("the short task's output is %q", out)
	}
	for _, job := range []muster.Job{quiet, chatty, short} {
		if n := c.Tasks(job.ID)[0].Attempt; n != 1 {
			t.Errorf("job %s took %d attempts", job.Name, n)
		}
	}
}

// TestLogOfALostAttempt disconnects a worker until the leases of its tasks have ended; one is requeued and another one cancelled meanwhile.
// After the reconnect their complete output arrives, and nothing of it remains on the worker.
func TestLogOfALostAttempt(t *testing.T) {
	t.Parallel() // it mostly waits
	c := mustertest.New(t, t.TempDir())
	proxy := linktest.NewProxy(t, c.Addr)
	dir, startsDir := t.TempDir(), mustertest.SharedDir(t)
	c.StartWorker("far", dir, "--server", "http://"+proxy.Addr, "--slots", "8", "--allow-write", startsDir)
	prints := func(name string) muster.Job {
		script := fmt.Sprintf(`test $MUSTER_ATTEMPT = 2 && exit; i=0; while i=$((i+1)); do echo line $i; echo line $i >> %s; sleep 0.05; done`, filepath.Join(startsDir, name))
		return c.Submit(withGrace(mustertest.ShellSpec(name, script), lease))
	}
	requeued, cancelled := prints("requeued"), prints("cancelled")
	c.AwaitRunning(requeued.ID, 1)
	c.AwaitRunning(cancelled.ID, 1)
	c.StartWorker("near", t.TempDir())
	proxy.Freeze()
	if _, err := c.Client.Cancel(t.Context(), cancelled.ID, nil); err != nil {
		t.Fatal(err)
	}
	if got := c.Wait(requeued.ID, time.Minute); got.State != muster.JobSucceeded {
		t.Fatalf("the job ended as %s: %v", got.State, got.Counts)
	}
	awaitNoTasks(t, c, dir)
	proxy.Thaw()
	for _, job := range []muster.Job{requeued, cancelled} {
		printed, err := os.ReadFile(filepath.Join(startsDir, job.Name))
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Count(string(printed), "\n")
		c.Await(fmt.Sprintf("all %d lines of %s are on the server", lines, job.Name), time.Minute, func() error {
			out := attemptOutput(t, c, muster.AttemptID{Task: muster.TaskID{Job: job.ID}, N: 1})
			if n := strings.Count(out, "\n"); n < lines || out != numberedLines(n) {
				return fmt.Errorf("%d are", n)
			}
			return nil
		})
	}
	c.Await("the worker has removed its copies", time.Minute, func() error {
		entries, err := os.ReadDir(filepath.Join(dir, "logs"))
		if err == nil && len(entries) > 0 {
			err = fmt.Errorf("%v are left", entries)
		}
		return err
	})
}
