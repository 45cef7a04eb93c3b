//go:build linux

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
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/mustertest"
)

// checkpointSpec is a task whose first attempt counts forever, and whose second one ends at once. It saves its position repeatedly, in a
// subfolder of its checkpoint, and once more on the signal to stop. It prints where it began.
func checkpointSpec() *muster.Spec {
	spec := mustertest.ShellSpec("counts", `
save() { echo $i >ckpt/n.new; mv ckpt/n.new ckpt/n; }
i=0; [ -e ckpt/n ] && i=$(cat ckpt/n)
echo "began at $i"
trap 'save; echo "saved $i"; exit 3' USR1
while [ $MUSTER_ATTEMPT = 1 ]; do i=$((i+1)); save; sleep 0.1; done
echo "ended at $i"`)
	spec.Tasks[0].Checkpoint = &muster.Checkpoint{
		Path: "ckpt", Every: muster.Duration(time.Second), Signal: "SIGUSR1", Grace: muster.Duration(20 * time.Second),
	}
	spec.Tasks[0].Disconnect = muster.Disconnect{Grace: muster.Duration(lease)}
	return spec
}

// awaitCheckpoint waits until another checkpoint than before is on the server, and returns it.
func awaitCheckpoint(c *mustertest.Cluster, job muster.JobID, before string) (tree string) {
	c.Await("a checkpoint is saved", time.Minute, func() error {
		if tree = c.Tasks(job)[0].Checkpoint; tree == "" || tree == before {
			return fmt.Errorf("it is %q", tree)
		}
		return nil
	})
	return tree
}

// startedFrom reads where a saver began, and checks that it came to its end.
func startedFrom(t *testing.T, output string) int {
	t.Helper()
	_, rest, ok := strings.Cut(output, "began at ")
	line, rest, _ := strings.Cut(rest, "\n")
	n, err := strconv.Atoi(line)
	if !ok || err != nil || !strings.Contains(rest, "ended at ") {
		t.Fatalf("the output is %q", output)
	}
	return n
}

// TestCheckpointMoves preempts a running task that saves its state: it gets the signal, and continues on another worker from exactly the
// number at which it stopped.
func TestCheckpointMoves(t *testing.T) {
	t.Parallel()
	soon := muster.Duration(time.Second)
	for name, removeWorker := range map[string]func(*mustertest.Cluster, *mustertest.Process) error{
		"shutdown": func(_ *mustertest.Cluster, w *mustertest.Process) error {
			w.Signal(syscall.SIGTERM)
			return nil
		},
		"drain with a deadline": func(c *mustertest.Cluster, _ *mustertest.Process) error {
			_, err := c.Client.DrainWorker(t.Context(), "w1", &soon)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := mustertest.New(t, t.TempDir())
			first := c.StartWorker("w1", t.TempDir())
			job := c.Submit(checkpointSpec())
			c.AwaitRunning(job.ID, 1)
			awaitCheckpoint(c, job.ID, "")
			c.StartWorker("w2", t.TempDir())
			if err := removeWorker(c, first); err != nil {
				t.Fatal(err)
			}
			waitSucceeded(t, c, job.ID)
			task := c.Tasks(job.ID)[0]
			if task.Attempt != 2 || task.Retries != 0 {
				t.Errorf("it took attempt %d, and %d retries", task.Attempt, task.Retries)
			}
			from := startedFrom(t, c.Output(task.ID))
			attempts, err := c.Client.Attempts(t.Context(), task.ID)
			if err != nil || len(attempts) != 2 || attempts[0].Reason != muster.Preempted {
				t.Fatalf("%v: %+v", err, attempts)
			}
			if saved := lastSavedStep(t, c, attempts[0].ID); saved != from {
				t.Errorf("it saved %d and restarted at %d", saved, from)
			}
		})
	}
}

// TestCheckpointOfALostMachine removes a machine with its disk: the task continues on another one from its last uploaded checkpoint.
func TestCheckpointOfALostMachine(t *testing.T) {
	t.Parallel()
	c := mustertest.New(t, t.TempDir())
	data := t.TempDir()
	machine := c.StartWorker("w1", data)
	job := c.Submit(checkpointSpec())
	c.AwaitRunning(job.ID, 1)
	awaitCheckpoint(c, job.ID, awaitCheckpoint(c, job.ID, ""))
	loseMachine(t, c, machine, data)
	c.StartWorker("w2", t.TempDir())
	waitSucceeded(t, c, job.ID)
	task := c.Tasks(job.ID)[0]
	if from := startedFrom(t, c.Output(task.ID)); from == 0 {
		t.Errorf("restarted at %d", from)
	}
	if task.Attempt != 2 {
		t.Errorf("it took attempt %d", task.Attempt)
	}
}

// lastSavedStep returns the last step that an ended attempt printed as saved.
func lastSavedStep(t *testing.T, c *mustertest.Cluster, id muster.AttemptID) int {
	t.Helper()
	n := -1
	for line, err := range c.Client.Logs(t.Context(), id.Task, client.LogOptions{Attempt: id.N, Stream: client.Stdout}) {
		if err != nil {
			t.Fatal(err)
		}
		if text, ok := strings.CutPrefix(string(line.Data), "saved "); ok {
			if n, err = strconv.Atoi(strings.TrimSpace(text)); err != nil {
				t.Fatal(err)
			}
		}
	}
	return n
}

// loseMachine kills a worker and all that belongs to it, and removes its data.
func loseMachine(t *testing.T, c *mustertest.Cluster, worker *mustertest.Process, data string) {
	t.Helper()
	worker.Kill()
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range processes {
		args, _ := os.ReadFile(filepath.Join(dir, "cmdline")) // it may have ended
		env, _ := os.ReadFile(filepath.Join(dir, "environ"))
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err == nil && pid != os.Getpid() && (strings.Contains(string(args), data) || strings.Contains(string(env), data)) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	c.Await("its disk is gone", 30*time.Second, func() error { return os.RemoveAll(data) })
}
