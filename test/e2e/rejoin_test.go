package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/mustertest"
)

// TestServerLostItsData replaces the data dir of a server by an empty one while its worker runs a task, and has output and a report to send:
// the worker stops the task, joins again as a new worker, and sends the new server nothing about the old tasks, although the new ones have the
// same numbers.
func TestServerLostItsData(t *testing.T) {
	t.Parallel() // it mostly waits
	c := mustertest.New(t, t.TempDir())
	dir, releaseFile := t.TempDir(), filepath.Join(mustertest.SharedDir(t), "gate")
	w := c.StartWorker("w1", dir, "--slots", "4")
	old := c.Submit(withArray(mustertest.ShellSpec("old", fmt.Sprintf("echo secret of the old server; [ $MUSTER_INDEX = 0 ] && exec sleep 600; while [ ! -e %s ]; do sleep 0.1; done; echo more", releaseFile)), 2))
	c.AwaitRunning(old.ID, 2)
	before, err := c.Client.Worker(t.Context(), "w1")
	if err != nil {
		t.Fatal(err)
	}
	c.Server.Kill()
	touch(t, releaseFile) // one ends, and its report waits
	c.Await("one of the tasks has ended", time.Minute, func() error {
		if n := len(mustertest.TaskPIDs(t, dir)); n > 1 {
			return fmt.Errorf("%d processes live", n)
		}
		return nil
	})
	key, err := os.ReadFile(filepath.Join(c.DataDir, "server.key"))
	if err != nil {
		t.Fatal(err)
	}
	c.DataDir = t.TempDir()
	if err := os.WriteFile(filepath.Join(c.DataDir, "server.key"), key, 0o600); err != nil { // without it the worker believes no refusal
		t.Fatal(err)
	}
	c.StartServer()
	c.AwaitWorkerState("w1", muster.WorkerActive)
	after, err := c.Client.Worker(t.Context(), "w1")
	if err != nil || after.ID == before.ID {
		t.Errorf("the worker is still %s (%v)", after.ID, err)
	}
	awaitNoTasks(t, c, dir)
	if !strings.Contains(w.Log(), "joined again") {
		t.Error("the worker does not log that it joined again")
	}
	if _, err := os.Stat(filepath.Join(dir, "identity.json."+string(before.ID)+".old")); err != nil {
		t.Error(err)
	}
	job := c.Submit(withArray(mustertest.ShellSpec("new", "echo of the new server"), 2))
	if job.ID != old.ID {
		t.Errorf("the new server's job is %d, which proves nothing about job %d", job.ID, old.ID)
	}
	if got := c.Wait(job.ID, time.Minute); got.State != muster.JobSucceeded {
		t.Errorf("the job ended as %s: %v", got.State, got.Counts)
	}
	for _, task := range c.Tasks(job.ID) {
		if out := c.Output(task.ID); out != "of the new server\n" || task.Attempt != 1 {
			t.Errorf("task %s ended with attempt %d and the output %q", task.ID, task.Attempt, out)
		}
	}
}

// TestRemovedWorkerDoesNotRejoin removes a worker: the join token that it still has does not
// bring it back.
func TestRemovedWorkerDoesNotRejoin(t *testing.T) {
	t.Parallel() // it mostly waits
	c := mustertest.New(t, t.TempDir())
	dir := t.TempDir()
	w := c.StartWorker("w1", dir)
	w.Signal(os.Interrupt)
	<-w.Done()
	c.Await("the worker is removed", time.Minute, func() error { return c.Client.RemoveWorker(t.Context(), "w1") })
	w = c.LaunchWorkerProgram(mustertest.Program(t), "w1", dir)
	select {
	case <-w.Done():
	case <-time.After(time.Minute):
		t.Fatal("the removed worker continues")
	}
	if log := w.Log(); !strings.Contains(log, "was revoked by an administrator") {
		t.Errorf("the removed worker does not log why it stops:\n%s", log)
	}
	if _, err := c.Client.Worker(t.Context(), "w1"); muster.CodeOf(err) != muster.NotFound {
		t.Errorf("the server still has the worker: %v", err)
	}
}

// TestUpSurvivesItsWorker revokes the key of the worker of muster up: the server keeps running and logs why the worker ended.
func TestUpSurvivesItsWorker(t *testing.T) {
	t.Parallel() // it mostly waits
	c := mustertest.NewWith(t, t.TempDir(), mustertest.Options{Up: true})
	c.Await("the worker of up to join", time.Minute, func() error {
		workers, err := c.Client.Workers(t.Context())
		if err == nil && len(workers) == 0 {
			err = errors.New("no worker has joined")
		}
		return err
	})
	keys, err := c.Client.Keys(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range keys {
		if k.Worker == "" {
			continue
		}
		if err := c.Client.RevokeKey(t.Context(), k.ID); err != nil {
			t.Fatal(err)
		}
	}
	c.Await("the message that the worker ended", time.Minute, func() error {
		if !strings.Contains(c.Server.Log(), "the server keeps running") {
			return errors.New("not logged")
		}
		return nil
	})
	if _, err := c.Client.Workers(t.Context()); err != nil {
		t.Errorf("the server does not answer: %v", err)
	}
	select {
	case <-c.Server.Done():
		t.Errorf("the server ended:\n%s", c.Server.Log())
	default:
	}
}
