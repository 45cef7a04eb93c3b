//go:build linux

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
	"github.com/muster-dev/muster/internal/agent/gpu/gputest"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/mustertest"
)

// awaitQuarantine waits until a worker has its only device in quarantine for a reason that contains want, or for "" until it offers the device
// again.
func awaitQuarantine(t *testing.T, c *mustertest.Cluster, worker, want string) {
	t.Helper()
	c.Await(fmt.Sprintf("the device of %s is in quarantine: %q", worker, want), 90*time.Second, func() error {
		w, err := c.Client.Worker(t.Context(), worker)
		if err != nil {
			return err
		}
		if n := len(w.Resources.GPUs); n != 1 {
			return fmt.Errorf("it has %d devices", n)
		}
		if got := w.Resources.GPUs[0].Quarantined; got == "" != (want == "") || !strings.Contains(got, want) {
			return fmt.Errorf("got %q", got)
		}
		return nil
	})
}

// gpuSpec is a task with one device that continues until there is a file stop in its folder
// of shared.
func gpuSpec(t *testing.T, shared, name, first, last string) (spec *muster.Spec, dir string) {
	t.Helper()
	if dir = filepath.Join(shared, name); errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, 0o777)) != nil {
		t.Fatal("the folder cannot be made")
	}
	spec = mustertest.ShellSpec(name, fmt.Sprintf("cd %s\n%s\necho $$ >pid.new; mv pid.new pid\nwhile [ ! -e stop ]; do sleep 0.05; done\n%s", dir, first, last))
	spec.Tasks[0].Resources.GPUs.Count = 1
	return spec, dir
}

func releaseGPUTask(t *testing.T, dir string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "stop"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestGPUKeepsMemory simulates a driver that does not release the memory of a task whose worker was killed: the next process knows the memory
// use before the task, nothing is placed on the device, and the quarantine ends when the memory is released.
func TestGPUKeepsMemory(t *testing.T) {
	t.Parallel()
	c := mustertest.New(t, t.TempDir())
	smi := gputest.Install(t, gputest.GPU{UUID: "GPU-a", Used: 2 * gib})
	c.WorkerEnv = []string{smi.Path()}
	data, shared := t.TempDir(), mustertest.SharedDir(t)
	worker := c.StartWorker("w1", data, "--allow-write", shared)
	spec, dir := gpuSpec(t, shared, "hog", "echo $CUDA_VISIBLE_DEVICES $NVIDIA_VISIBLE_DEVICES $MUSTER_GPUS $ROCR_VISIBLE_DEVICES", "")
	spec.Tasks[0].Env = map[string]string{"CUDA_VISIBLE_DEVICES": "0,1,2", "ROCR_VISIBLE_DEVICES": "0"}
	hog := c.Submit(spec)
	c.Await("the task runs", time.Minute, func() error {
		if readNumber(dir, "pid") == 0 {
			return fmt.Errorf("it does not")
		}
		return nil
	})
	smi.Set(gputest.GPU{UUID: "GPU-a", Used: 14 * gib, Processes: []gputest.Process{{PID: readNumber(dir, "pid"), Name: "sh", Memory: 12 * gib}}})
	worker.Kill()
	c.StartWorker("w1", data, "--allow-write", shared)
	smi.Set(gputest.GPU{UUID: "GPU-a", Used: 14 * gib})
	releaseGPUTask(t, dir)
	waitSucceeded(t, c, hog.ID)
	if got := c.Output(muster.TaskID{Job: hog.ID}); got != "GPU-a GPU-a GPU-a\n" {
		t.Errorf("it sees %q", got)
	}
	awaitQuarantine(t, c, "w1", "12GiB of its memory was not freed after task "+c.Tasks(hog.ID)[0].ID.String())
	waits := mustertest.ShellSpec("waits", "true")
	waits.Tasks[0].Resources.GPUs.Count = 1
	waiting := c.Submit(waits)
	awaitExplanation(t, c, waiting.ID, "is quarantined: 12GiB of its memory")
	bare := c.Submit(mustertest.ShellSpec("bare", `echo "<$CUDA_VISIBLE_DEVICES>" $NVIDIA_VISIBLE_DEVICES`))
	waitSucceeded(t, c, bare.ID)
	if got := c.Output(muster.TaskID{Job: bare.ID}); got != "<> void\n" {
		t.Errorf("a task without devices sees %q", got)
	}
	smi.Set(gputest.GPU{UUID: "GPU-a", Used: 2 * gib})
	waitSucceeded(t, c, waiting.ID)
	awaitQuarantine(t, c, "w1", "")
}

// TestGPUStray runs a task that leaves a daemon on its device, without the task's environment and next to an older task, so that only the
// device identifies its owner: the daemon is killed, and the device is free.
func TestGPUStray(t *testing.T) {
	t.Parallel()
	c := mustertest.New(t, t.TempDir())
	smi := gputest.Install(t, gputest.GPU{UUID: "GPU-a"})
	c.WorkerEnv = []string{smi.Path()}
	shared := mustertest.SharedDir(t)
	c.StartWorker("w1", t.TempDir(), "--allow-write", shared)
	older, olderDir := gpuSpec(t, shared, "older", "", "")
	older.Tasks[0].Resources.GPUs.Count = 0
	first := c.Submit(older)
	c.AwaitRunning(first.ID, 1)
	spec, dir := gpuSpec(t, shared, "daemon", `env -i setsid sh -c 'echo $$ >stray.new; mv stray.new stray; exec sleep 600' >/dev/null 2>&1 &
while [ ! -e stray ]; do sleep 0.05; done`, "")
	job := c.Submit(spec)
	c.Await("the task runs", time.Minute, func() error {
		if readNumber(dir, "pid") == 0 {
			return fmt.Errorf("it does not")
		}
		return nil
	})
	orphan := readNumber(dir, "stray")
	smi.Set(gputest.GPU{UUID: "GPU-a", Used: 8 * gib, Processes: []gputest.Process{{PID: orphan, Name: "sleep", Memory: 8 * gib}}})
	releaseGPUTask(t, dir)
	c.Await("the stray is ended", time.Minute, func() error {
		if state := processState(orphan); state != "" && state != "Z" {
			return fmt.Errorf("it is %s", state)
		}
		return nil
	})
	smi.Set(gputest.GPU{UUID: "GPU-a"})
	waitSucceeded(t, c, job.ID)
	awaitQuarantine(t, c, "w1", "")
	releaseGPUTask(t, olderDir)
	waitSucceeded(t, c, first.ID)
}

// TestGPUFault makes a device fail during a task: the attempt ends as gpu_fault and runs again on another worker, and the device stays in
// quarantine until it is healthy and an administrator heals it.
func TestGPUFault(t *testing.T) {
	t.Parallel()
	c := mustertest.New(t, t.TempDir())
	smi := gputest.Install(t, gputest.GPU{UUID: "GPU-a"})
	c.WorkerEnv = []string{smi.Path()}
	shared := mustertest.SharedDir(t)
	broken := c.StartWorker("w1", t.TempDir(), "--allow-write", shared)
	spec, dir := gpuSpec(t, shared, "train", "", `[ "$MUSTER_ATTEMPT" != 1 ] || exit 3`)
	job := c.Submit(spec)
	c.AwaitRunning(job.ID, 1)
	c.WorkerEnv = []string{gputest.Install(t, gputest.GPU{UUID: "GPU-b"}).Path()}
	c.StartWorker("w2", t.TempDir(), "--allow-write", shared)
	smi.Set(gputest.GPU{UUID: "GPU-a", Broken: "[GPU requires reset]"})
	releaseGPUTask(t, dir)
	waitSucceeded(t, c, job.ID)
	task := c.Tasks(job.ID)[0]
	if task.Attempt != 2 {
		t.Errorf("it took %d attempts", task.Attempt)
	}
	attempts, err := c.Client.Attempts(t.Context(), task.ID)
	if err != nil || len(attempts) != 2 {
		t.Fatalf("%d attempts, %v", len(attempts), err)
	}
	for _, a := range attempts {
		if a.ID.N == 1 && (a.Reason != muster.GPUFault || !strings.Contains(a.Message, "GPU requires reset")) {
			t.Errorf("the first attempt ended as %s: %s", a.Reason, a.Message)
		}
	}
	awaitQuarantine(t, c, "w1", "GPU requires reset")
	awaitQuarantine(t, c, "w2", "")
	heal := func() {
		t.Helper()
		if _, err := c.Client.HealWorker(t.Context(), "w1", "0"); err != nil {
			t.Fatal(err)
		}
	}
	heal()
	c.Await("the worker says that it is not well", time.Minute, func() error {
		if log := broken.Log(); strings.Count(log, "GPU quarantined") < 2 {
			return fmt.Errorf("it does not")
		}
		return nil
	})
	awaitQuarantine(t, c, "w1", "GPU requires reset")
	smi.Set(gputest.GPU{UUID: "GPU-a"})
	c.Await("it is healed", time.Minute, func() error {
		w, err := c.Client.Worker(t.Context(), "w1")
		if err == nil && w.Resources.GPUs[0].Quarantined != "" {
			_, err = c.Client.HealWorker(t.Context(), "w1")
			if err == nil {
				err = fmt.Errorf("got %s", w.Resources.GPUs[0].Quarantined)
			}
		}
		return err
	})
}

// TestGPUShare checks that a task over its share of a device gets a warning in its log, and is then stopped with the values in its message;
// the other task on the device continues.
func TestGPUShare(t *testing.T) {
	t.Parallel()
	c := mustertest.New(t, t.TempDir())
	smi := gputest.Install(t, gputest.GPU{UUID: "GPU-a"})
	c.WorkerEnv = []string{smi.Path()}
	shared := mustertest.SharedDir(t)
	c.StartWorker("w1", t.TempDir(), "--allow-write", shared)
	share := func(name string) (muster.JobID, string) {
		spec, dir := gpuSpec(t, shared, name, "", "")
		spec.Tasks[0].Resources.GPUs = muster.GPURequest{Count: 1, Memory: 2 * gib, Share: true}
		id := c.Submit(spec).ID
		c.AwaitRunning(id, 1)
		c.Await(name+" runs", time.Minute, func() error {
			if readNumber(dir, "pid") == 0 {
				return fmt.Errorf("it does not")
			}
			return nil
		})
		return id, dir
	}
	greedy, greedyDir := share("greedy")
	fair, fairDir := share("fair")
	smi.Set(gputest.GPU{UUID: "GPU-a", Used: 5 * gib, Processes: []gputest.Process{
		{PID: readNumber(greedyDir, "pid"), Name: "sh", Memory: 3 * gib}, {PID: readNumber(fairDir, "pid"), Name: "sh", Memory: 2 * gib},
	}})
	job := c.Wait(greedy, time.Minute)
	task := c.Tasks(greedy)[0]
	if job.State != muster.JobFailed || task.Reason != muster.GPUMemory || !strings.Contains(task.Message, "held 3GiB") {
		t.Errorf("it is %s by %s: %s", job.State, task.Reason, task.Message)
	}
	var lines []string
	for line, err := range c.Client.Logs(t.Context(), task.ID, client.LogOptions{Follow: true}) {
		if err != nil {
			t.Fatal(err)
		}
		if line.Stream == client.System {
			lines = append(lines, string(line.Data))
		}
	}
	if len(lines) != 1 || !strings.Contains(lines[0], "holds 3GiB") || !strings.Contains(lines[0], "was granted 2GiB") {
		t.Errorf("the log warns by %q", lines)
	}
	smi.Set(gputest.GPU{UUID: "GPU-a"})
	releaseGPUTask(t, fairDir)
	waitSucceeded(t, c, fair)
}
