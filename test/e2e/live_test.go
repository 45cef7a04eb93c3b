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
	dir, marks := t.TempDir(), mustertest.Shared(t)
	w := c.StartWorker("w1", dir, "--allow-write", marks)
	job := c.Submit(mustertest.Shell("paints", fmt.Sprintf(`mkdir $MUSTER_OUT/live; cd $MUSTER_OUT/live
		for n in 1 2 3; do
			echo version $n > .a.png; mv .a.png a.png
			while [ ! -e %s/$n ]; do sleep 0.1; done
		done`, marks)))
	id := muster.TaskID{Job: job.ID}
	shows := func(what, want string) {
		t.Helper()
		c.Await(what, time.Minute, func() error {
			task, err := c.Client.Task(t.Context(), id)
			if err != nil {
				return err
			}
			var got bytes.Buffer
			for _, a := range task.Artifacts {
				if err := c.Client.Read(t.Context(), id, a, &got); err != nil {
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
		if err := os.WriteFile(filepath.Join(marks, strconv.Itoa(n)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	shows("first", "version 1")
	next(1)
	shows("after it was replaced", "version 2")
	w.Kill()
	shows("without a worker", "version 2")
	next(2) // nobody sees what it shows now
	c.StartWorker("w1", dir, "--allow-write", marks)
	shows("with the worker's next life", "version 3")
	next(3)
	if task := c.Wait(job.ID, time.Minute); task.State != muster.JobSucceeded {
		t.Fatalf("the job %s", task.State)
	}
	shows("at its end", "version 3")
}
