package e2e

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/mustertest"
)

// prune starts a prune, unless as many as may wait do already.
func prune(t *testing.T, c *mustertest.Cluster) error {
	t.Helper()
	if _, err := c.Client.Prune(t.Context(), client.PruneRequest{}); muster.CodeOf(err) != muster.Conflict {
		return err
	}
	return nil
}

// TestRetentionOptions checks that the limits of the options are applied by a prune and by the pass at the start of the server, that a kept job stays whole, and that
// a worker that left is forgotten and may join again.
func TestRetentionOptions(t *testing.T) {
	t.Parallel() // it mostly waits
	c := mustertest.NewWith(t, t.TempDir(), mustertest.Options{Flags: []string{"--keep-jobs", "forever", "--keep-logs", "1s", "--keep-artifacts", "1s", "--keep-uploads", "1h", "--keep-workers", "1s"}})
	c.StartWorker("w1", t.TempDir())
	dir := t.TempDir()
	leaves := c.StartWorker("w2", dir)
	leaves.Signal(syscall.SIGTERM)
	c.AwaitWorkerState("w2", muster.WorkerGone)

	spec := mustertest.ShellSpec("writes", "echo hello; echo $MUSTER_TASK > out.txt")
	spec.Tasks[0].Kind, spec.Tasks[0].Outputs = muster.KindScript, []string{"out.txt"}
	expired, kept := c.Submit(spec).ID, c.Submit(spec).ID
	for _, id := range []muster.JobID{expired, kept} {
		if job := c.Wait(id, time.Minute); job.State != muster.JobSucceeded {
			t.Fatalf("job %s is %s: %s", id, job.State, c.Tasks(id)[0].Message)
		}
		if err := whole(t, c, id); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Client.KeepJob(t.Context(), kept, true); err != nil {
		t.Fatal(err)
	}
	task := muster.TaskID{Job: expired}
	age(t, filepath.Join(c.DataDir, "blobs")) // nothing uploads meanwhile
	c.Await("logs and artifacts are deleted", time.Minute, func() error {
		if err := prune(t, c); err != nil {
			return err
		}
		job, err := c.Client.Job(t.Context(), expired)
		if err == nil && (job.LogsRemovedAt == 0 || job.ArtifactsRemovedAt == 0) {
			err = errors.New("they are there")
		}
		if err != nil {
			return err
		}
		if _, err = readArtifact(t, c, task); muster.CodeOf(err) == muster.NotFound {
			return nil
		}
		return errors.Join(errors.New("the file is there"), err)
	})
	for _, err := range c.Client.Logs(t.Context(), task, client.LogOptions{}) {
		if muster.CodeOf(err) != muster.NotFound {
			t.Errorf("the deleted log: %v", err)
		}
	}
	if err := whole(t, c, kept); err != nil {
		t.Error(err)
	}
	c.Await("the worker that left is forgotten", time.Minute, func() error {
		_, err := c.Client.Worker(t.Context(), "w2")
		if muster.CodeOf(err) == muster.NotFound {
			return nil
		}
		return errors.Join(fmt.Errorf("it is listed (%w)", err), prune(t, c))
	})
	c.StartWorker("w2", dir)

	c.Server.Kill()
	c.LaunchServer("--keep-jobs", "1s")
	c.Await("the job is deleted after the start", time.Minute, func() error {
		_, err := c.Client.Job(t.Context(), expired)
		if muster.CodeOf(err) == muster.NotFound {
			return nil
		}
		return errors.Join(errors.New("it is there"), err)
	})
	if err := whole(t, c, kept); err != nil {
		t.Error(err)
	}
}

// whole checks that the output and the artifact of a job can be read.
func whole(t *testing.T, c *mustertest.Cluster, id muster.JobID) error {
	t.Helper()
	task := muster.TaskID{Job: id}
	if out := c.Output(task); out != "hello\n" {
		return fmt.Errorf("the log of job %s is %q", id, out)
	}
	text, err := readArtifact(t, c, task)
	if err == nil && text != task.String()+"\n" {
		err = fmt.Errorf("the artifact of job %s is %q", id, text)
	}
	return err
}

// readArtifact returns the only artifact of a task.
func readArtifact(t *testing.T, c *mustertest.Cluster, task muster.TaskID) (string, error) {
	t.Helper()
	list, err := c.Client.Artifacts(t.Context(), task)
	if err != nil {
		return "", err
	}
	if len(list) != 1 {
		return "", fmt.Errorf("task %s has %d artifacts", task, len(list))
	}
	var text strings.Builder
	err = c.Client.ReadArtifact(t.Context(), task, list[0], &text)
	return text.String(), err
}
