package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/mustertest"
)

// saver is a task that counts to a number, on from what it saved. It saves what it has reached
// again and again, in a folder of its own that leads to its checkpoint, and once more when it
// is asked to end. It says where it began.
func saver(most int) *muster.Spec {
	spec := mustertest.Shell("counts", fmt.Sprintf(`
save() { echo $i >ckpt/n.new; mv ckpt/n.new ckpt/n; }
i=0; [ -e ckpt/n ] && i=$(cat ckpt/n)
echo "began at $i"
trap 'save; echo "saved $i"; exit 3' USR1
while [ $i -lt %d ]; do i=$((i+1)); save; echo "::muster metric=1 n=$i" >/dev/null; sleep 0.1; done
echo "ended at $i"`, most))
	spec.Tasks[0].Checkpoint = &muster.Checkpoint{
		Path: "ckpt", Every: muster.Duration(time.Second), Signal: "SIGUSR1", Grace: muster.Duration(20 * time.Second),
	}
	spec.Tasks[0].Disconnect = muster.Disconnect{Grace: muster.Duration(3 * time.Second)}
	return spec
}

// checkpoint waits until another checkpoint than before is on the server, and returns it.
func checkpoint(c *mustertest.Cluster, job muster.JobID, before string) (tree string) {
	c.Await("a checkpoint is saved", 30*time.Second, func() error {
		if tree = c.Tasks(job)[0].Checkpoint; tree == "" || tree == before {
			return fmt.Errorf("it is %q", tree)
		}
		return nil
	})
	return tree
}

// began reads where a saver began, and checks that it came to its end.
func began(t *testing.T, output string) int {
	t.Helper()
	_, rest, ok := strings.Cut(output, "began at ")
	line, rest, _ := strings.Cut(rest, "\n")
	n, err := strconv.Atoi(line)
	if !ok || err != nil || !strings.Contains(rest, "ended at ") {
		t.Fatalf("the output is %q", output)
	}
	return n
}

// TestCheckpointMoves drains the worker of a task that saves its state: it is asked to, and goes on at
// another worker from the very number at which it stopped.
func TestCheckpointMoves(t *testing.T) {
	c := mustertest.New(t, t.TempDir())
	first := c.StartWorker("w1", t.TempDir())
	job := c.Submit(saver(100))
	c.Running(job.ID, 1)
	checkpoint(c, job.ID, "")
	c.StartWorker("w2", t.TempDir())
	first.Signal(syscall.SIGTERM) // it shuts down: tasks with a checkpoint move at once
	succeeds(c, t, job.ID)
	task := c.Tasks(job.ID)[0]
	if task.Attempt != 2 || task.Retried != 0 {
		t.Errorf("it took attempt %d, and %d retries", task.Attempt, task.Retried)
	}
	from := began(t, c.Output(task.ID))
	attempts, err := c.Client.Attempts(t.Context(), task.ID)
	if err != nil || len(attempts) != 2 || attempts[0].Reason != muster.Preempted {
		t.Fatalf("%v: %+v", err, attempts)
	}
	if said := lastSaved(t, c, attempts[0].ID); said != from {
		t.Errorf("it saved %d and began again at %d", said, from)
	}
}

// TestCheckpointOfALostMachine takes a machine away, with all that is on its disk: the task goes
// on at another one from what had been saved of it while it ran.
func TestCheckpointOfALostMachine(t *testing.T) {
	c := mustertest.New(t, t.TempDir())
	data := t.TempDir()
	machine := c.StartWorker("w1", data)
	job := c.Submit(saver(100))
	c.Running(job.ID, 1)
	tree := checkpoint(c, job.ID, "")
	tree = checkpoint(c, job.ID, tree)
	loseMachine(t, machine, data)
	c.StartWorker("w2", t.TempDir())
	succeeds(c, t, job.ID)
	task := c.Tasks(job.ID)[0]
	if from := began(t, c.Output(task.ID)); from == 0 || from >= 100 {
		t.Errorf("it began again at %d", from)
	}
	if task.Attempt != 2 {
		t.Errorf("it took attempt %d", task.Attempt)
	}
	_ = tree
}
