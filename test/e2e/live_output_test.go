package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/mustertest"
)

// TestLive looks at a file of a task while it runs, in the version of before and after it was replaced, over a
// crash of the worker, and at its end.
func TestLive(t *testing.T) {
	t.Parallel()
	c := mustertest.New(t, t.TempDir())
	dir, startsDir := t.TempDir(), mustertest.SharedDir(t)
	w := c.StartWorker("w1", dir, "--allow-write", startsDir)
	job := c.Submit(mustertest.ShellSpec("paints", fmt.Sprintf(`mkdir $MUSTER_OUT/live; cd $MUSTER_OUT/live
		for n in 1 2 3; do
			echo version $n > .a.png; mv .a.png a.png
			while [ ! -e %s/$n ]; do sleep 0.1; done
		done`, startsDir)))
	id := muster.TaskID{Job: job.ID}
	awaitContent := func(desc, want string) {
		t.Helper()
		c.Await(desc, time.Minute, func() error {
			task, err := c.Client.Task(t.Context(), id)
			if err != nil {
				return err
			}
			var got bytes.Buffer
			for _, a := range task.Artifacts {
				if err := c.Client.ReadArtifact(t.Context(), id, a, &got); err != nil {
					return err
				}
			}
			if len(task.Artifacts) != 1 || task.Artifacts[0].Name != "live/a.png" || task.Attempt != 1 || got.String() != want+"\n" {
				return fmt.Errorf("attempt %d of task %s is %s (%s) and shows %v: %q, want %q", task.Attempt, id, task.State, task.Message, task.Artifacts, got.String(), want)
			}
			return nil
		})
	}
	next := func(n int) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(startsDir, strconv.Itoa(n)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	awaitContent("first", "version 1")
	next(1)
	awaitContent("after it was replaced", "version 2")
	w.Kill()
	awaitContent("without a worker", "version 2")
	next(2) // its files are not uploaded now
	c.StartWorker("w1", dir, "--allow-write", startsDir)
	awaitContent("after a restart of the worker", "version 3")
	next(3)
	if task := c.Wait(job.ID, time.Minute); task.State != muster.JobSucceeded {
		t.Fatalf("the job %s", task.State)
	}
	awaitContent("at its end", "version 3")
}
