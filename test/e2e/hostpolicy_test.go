//go:build linux

package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/gpu/gputest"
	"github.com/muster-dev/muster/internal/mustertest"
)

const gib = muster.Size(1 << 30)

// awaitConstrained waits until the worker reports why it takes no new tasks, with all parts of want; without any, until it takes tasks again.
func awaitConstrained(t *testing.T, c *mustertest.Cluster, worker string, want ...string) {
	t.Helper()
	c.Await(fmt.Sprintf("worker %s is constrained by %q", worker, want), time.Minute, func() error {
		w, err := c.Client.Worker(t.Context(), worker)
		if err != nil {
			return err
		}
		if len(want) == 0 && w.Constrained != "" {
			return fmt.Errorf("it is: %s", w.Constrained)
		}
		for _, part := range want {
			if !strings.Contains(w.Constrained, part) {
				return fmt.Errorf("got %q", w.Constrained)
			}
		}
		return nil
	})
}

// awaitExplanation waits until the explanation of a job's only task, which has not started, contains want.
func awaitExplanation(t *testing.T, c *mustertest.Cluster, job muster.JobID, want string) {
	t.Helper()
	c.Await("it is explained why the task waits", time.Minute, func() error {
		task := c.Tasks(job)[0]
		if task.State != muster.Queued {
			return fmt.Errorf("it is %s", task.State)
		}
		ex, err := c.Client.Explain(t.Context(), task.ID)
		if err != nil {
			return err
		}
		if !strings.Contains(fmt.Sprintf("%+v", ex), want) {
			return fmt.Errorf("got %+v", ex)
		}
		return nil
	})
}

// waitSucceeded waits for a job that must succeed.
func waitSucceeded(t *testing.T, c *mustertest.Cluster, job muster.JobID) {
	t.Helper()
	if j := c.Wait(job, 2*time.Minute); j.State != muster.JobSucceeded {
		t.Errorf("job %d ended as %s", job, j.State)
	}
}

// TestBusyCores keeps all cores of the machine busy: the worker takes no new tasks and reports the values, as does the explanation of a
// waiting task.
func TestBusyCores(t *testing.T) {
	c := mustertest.New(t, t.TempDir())
	for range runtime.NumCPU() {
		burn := exec.Command("sh", "-c", "while :; do :; done")
		if err := burn.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = burn.Process.Kill(); _ = burn.Wait() })
	}
	c.StartWorker("w1", t.TempDir(), "--max-cpu-percent", "20", "--cool-down", "1h")
	awaitConstrained(t, c, "w1", "cpu at ", "% is over --max-cpu-percent 20; takes tasks again below 15% for 1h")
	job := c.Submit(mustertest.ShellSpec("waits", "true"))
	awaitExplanation(t, c, job.ID, "is over --max-cpu-percent 20")
}

// TestBusyGPU makes a device busy and idle again: the worker takes no new tasks, and takes the waiting one after the cool-down.
func TestBusyGPU(t *testing.T) {
	t.Parallel()
	c := mustertest.New(t, t.TempDir())
	smi := gputest.Install(t, gputest.GPU{Utilization: 0.1})
	c.WorkerEnv = []string{smi.Path()}
	c.StartWorker("w1", t.TempDir(), "--max-gpu-percent", "50", "--cool-down", "3s")
	waitSucceeded(t, c, c.Submit(mustertest.ShellSpec("before", "true")).ID)
	smi.Set(gputest.GPU{Utilization: 0.9})
	awaitConstrained(t, c, "w1", "gpu at 90% is over --max-gpu-percent 50; takes tasks again below 45% for 3s")
	job := c.Submit(mustertest.ShellSpec("waits", "true"))
	awaitExplanation(t, c, job.ID, "gpu at 90% is over --max-gpu-percent 50")
	smi.Set(gputest.GPU{Utilization: 0.4})
	waitSucceeded(t, c, job.ID)
	awaitConstrained(t, c, "w1")
}

// TestOutsideItsHours starts a worker outside its hours.
func TestOutsideItsHours(t *testing.T) {
	t.Parallel()
	c := mustertest.New(t, t.TempDir())
	from, to := time.Now().Add(2*time.Hour), time.Now().Add(4*time.Hour)
	c.StartWorker("w1", t.TempDir(), "--hours", from.Format("15:04-")+to.Format("15:04"))
	awaitConstrained(t, c, "w1", "outside its hours", "opens at ", from.Format("15:04"))
	awaitExplanation(t, c, c.Submit(mustertest.ShellSpec("waits", "true")).ID, "outside its hours")
}

// countingSpec is a task that shows how far it is, and which process it is, in a folder of shared.
func countingSpec(t *testing.T, shared, name string, gpus int, checkpoint bool) (spec *muster.Spec, dir string) {
	t.Helper()
	if dir = filepath.Join(shared, name); errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, 0o777)) != nil {
		t.Fatal("the folder cannot be made")
	}
	spec = mustertest.ShellSpec(name, fmt.Sprintf(`cd %s; echo $$ >pid.new; mv pid.new pid; i=0; while [ ! -e stop ]; do i=$((i+1)); echo $i >n.new; mv n.new n; sleep 0.1; done`, dir))
	spec.Tasks[0].Resources.GPUs.Count = gpus
	if checkpoint {
		spec.Tasks[0].Checkpoint = &muster.Checkpoint{Grace: muster.Duration(5 * time.Second)}
	}
	return spec, dir
}

// readNumber reads a number that a counting task wrote, 0 if there is none yet.
func readNumber(dir, name string) int {
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return 0
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return 0
	}
	return n
}

// processState is a letter of proc_pid_stat(5).
func processState(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	return rest[:1]
}

// isStopped reports whether a process is stopped by a signal, and its state. A shell that was stopped in vfork(2) waits for its child, which
// is stopped before it can exec: it is in state D, and stopped like one in T.
func isStopped(pid int) (bool, string) {
	state := processState(pid)
	if state != "D" {
		return state == "T", state
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", pid))
	if err != nil {
		return false, state
	}
	for s := range strings.FieldsSeq(string(b)) {
		if child, err := strconv.Atoi(s); err == nil && processState(child) == "T" {
			return true, state
		}
	}
	return false, state
}

func awaitFrozen(c *mustertest.Cluster, dir string, want bool) {
	c.Await(fmt.Sprintf("the task is frozen: %t", want), time.Minute, func() error {
		if is, state := isStopped(readNumber(dir, "pid")); state == "" || is != want {
			return fmt.Errorf("its process is %q", state)
		}
		return nil
	})
}

// awaitProgress waits until a counting task has moved on.
func awaitProgress(c *mustertest.Cluster, dir string) {
	before := readNumber(dir, "n")
	c.Await("the task counts", time.Minute, func() error {
		if n := readNumber(dir, "n"); n <= before {
			return fmt.Errorf("it is at %d, and was at %d", n, before)
		}
		return nil
	})
}

// TestOwnerWantsTheGPU runs a program of the owner on one of two devices: its task is really frozen, only this device is withheld, a task with
// a checkpoint moves to the other device, and everything continues when the owner's program ends, also if the worker was killed meanwhile.
func TestOwnerWantsTheGPU(t *testing.T) {
	t.Parallel()
	c := mustertest.New(t, t.TempDir())
	smi := gputest.Install(t, gputest.GPU{}, gputest.GPU{})
	c.WorkerEnv = []string{smi.Path()}
	data, shared := t.TempDir(), mustertest.SharedDir(t)
	flags := []string{"--yield-to-owner", "--cool-down", "3s", "--allow-write", shared}
	worker := c.StartWorker("w1", data, flags...)
	spec, dir := countingSpec(t, shared, "frozen", 1, false)
	job := c.Submit(spec)
	c.AwaitRunning(job.ID, 1)
	awaitProgress(c, dir)
	taskGPU := c.Tasks(job.ID)[0].Grant.GPUs[0]
	var other string
	w, err := c.Client.Worker(t.Context(), "w1")
	if err != nil || len(w.Resources.GPUs) != 2 {
		t.Fatalf("%v, %+v", err, w.Resources)
	}
	if other = w.Resources.GPUs[0].UUID; other == taskGPU {
		other = w.Resources.GPUs[1].UUID
	}

	blender := exec.Command("sleep", "600")
	if err := blender.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = blender.Process.Kill(); _ = blender.Wait() })
	owner := func(uuid string) {
		gpus := []gputest.GPU{{UUID: taskGPU}, {UUID: other}}
		for i := range gpus {
			if gpus[i].UUID == uuid {
				gpus[i].Used = 3 * gib
				gpus[i].Processes = []gputest.Process{{PID: blender.Process.Pid, Name: "/usr/bin/blender", Memory: 3 * gib}}
			}
		}
		smi.Set(gpus...)
	}
	owner(taskGPU)
	awaitFrozen(c, dir, true)
	c.Await("the task says why", time.Minute, func() error {
		if step := c.Tasks(job.ID)[0].Step; !strings.Contains(step, "frozen: its GPU is in use by its owner: pid") {
			return fmt.Errorf("its step is %q", step)
		}
		return nil
	})
	c.Await("the device is withheld", time.Minute, func() error {
		w, err := c.Client.Worker(t.Context(), "w1")
		if err != nil {
			return err
		}
		for _, d := range w.Resources.GPUs {
			if got, want := d.Quarantined, d.UUID == taskGPU; strings.Contains(got, "blender") != want {
				return fmt.Errorf("device %s: %q", d.UUID, got)
			}
		}
		return nil
	})
	// The other device is given out, and its task moves when the owner goes there.
	movableSpec, movedDir := countingSpec(t, shared, "moves", 1, true)
	movingJob := c.Submit(movableSpec)
	c.AwaitRunning(movingJob.ID, 1)
	awaitProgress(c, movedDir)
	owner(other)
	c.Await("it is preempted", time.Minute, func() error {
		if task := c.Tasks(movingJob.ID)[0]; task.Attempt < 2 && task.State != muster.Queued {
			return fmt.Errorf("it is %s", task.State)
		}
		return nil
	})
	awaitFrozen(c, dir, false)
	awaitProgress(c, dir)

	owner(taskGPU)
	awaitFrozen(c, dir, true)
	worker.Kill()
	if is, state := isStopped(readNumber(dir, "pid")); !is {
		t.Errorf("without a worker it is %q", state)
	}
	owner("")
	c.StartWorker("w1", data, flags...)
	awaitFrozen(c, dir, false)
	awaitProgress(c, dir)
	for _, d := range []string{dir, movedDir} {
		if err := os.WriteFile(filepath.Join(d, "stop"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	waitSucceeded(t, c, job.ID)
	waitSucceeded(t, c, movingJob.ID)
	if n := c.Tasks(job.ID)[0].Attempt; n != 1 {
		t.Errorf("the frozen task took %d attempts", n)
	}
}
