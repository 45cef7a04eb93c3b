package ml

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/muster-dev/muster"
)

// TestTrainingSurvivesKills kills, in the middle of an epoch, first the worker of a training, which returns and continues with the same
// program, then that program, and finally the worker for good: another worker continues from the checkpoint, and the result is identical to
// that of an undisturbed training.
func TestTrainingSurvivesKills(t *testing.T) {
	const epochs, size, images = 4, 4, 1437
	w := newSystemEnv(t, []string{"torch", "sklearn", "matplotlib"}, "--slots", "1")
	input := map[string]any{"dataset": "digits", "epochs": epochs, "batch_size": size, "seed": 5, "checkpoint_every": 0.2}
	saved := func(s *muster.TaskSpec) {
		s.Retries.Max = 1
		s.Env = map[string]string{"OMP_NUM_THREADS": "1"} // more would only wait for each other
		s.Checkpoint = &muster.Checkpoint{Every: muster.Duration(time.Second)}
	}
	var alone, result struct {
		ModelURL            string
		FinalAccuracy       float64
		ResumedAfterBatches int
	}
	undisturbed := w.Submit(w.taskSpec("mnist_training", input, saved))
	w.AwaitRunning(undisturbed.ID, 1) // on w1, which has no room for another
	data := t.TempDir()
	worker := w.StartWorker("w2", data, "--python", systemPython)
	elsewhere := func(s *muster.TaskSpec) { s.Where.Workers = []string{"w2", "w3"} } // also if the other has ended by now
	job := w.Submit(w.taskSpec("mnist_training", input, saved, elsewhere))
	// trains waits until the program has done more than so much of its work, and kept it, and holds it there; then for the server to know.
	// It is the program itself that is looked at: what is known elsewhere may be so late that it has ended.
	trains := func(beyond float64) (pid int, now float64) {
		t.Helper()
		w.Await("the training continues", 3*time.Minute, func() error {
			pids := processesMatching(t, "muster_torch.mnist", data)
			if len(pids) != 1 {
				return fmt.Errorf("its programs are %v", pids)
			}
			pid = pids[0]
			if progress, hasState := readProgress(t, pid); progress <= beyond || !hasState {
				return fmt.Errorf("it is at %v, and has a checkpoint: %v", progress, hasState)
			}
			return syscall.Kill(pid, syscall.SIGSTOP)
		})
		now, _ = readProgress(t, pid)
		w.Await("the server knows", time.Minute, func() error {
			task := w.Tasks(job.ID)[0]
			if task.Progress == nil || *task.Progress <= beyond || task.Checkpoint == "" {
				return fmt.Errorf("it is %s (%s) at %v, with the checkpoint %q", task.State, task.Message, task.Progress, task.Checkpoint)
			}
			return nil
		})
		return pid, now
	}
	pid, done := trains(0)
	worker.Kill()
	worker = w.StartWorker("w2", data, "--python", systemPython)
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	again, _ := trains(done)
	if again != pid {
		t.Errorf("process %d continues with the training of process %d", again, pid)
	}

	w.StartWorker("w3", t.TempDir(), "--python", systemPython)
	if _, err := w.Client.DrainWorker(t.Context(), "w2", nil); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	w.Await("the training is tried again", 3*time.Minute, func() error {
		if task := w.Tasks(job.ID)[0]; task.Attempt < 2 {
			return errors.New("it is not")
		}
		return nil
	})
	worker.Kill()
	last := w.waitTasks(job.ID)[0]
	last.requireSucceeded(&result)
	w.waitTasks(undisturbed.ID)[0].requireSucceeded(&alone)
	attempts, err := w.Client.Attempts(t.Context(), last.ID)
	if err != nil || len(attempts) != 2 || attempts[0].Reason != muster.Signal || attempts[0].Worker == attempts[1].Worker {
		t.Fatalf("the attempts are %+v, %v", attempts, err)
	}
	if batches := epochs * images / size; result.ResumedAfterBatches == 0 || result.ResumedAfterBatches >= batches || !strings.Contains(last.log(), "continuing from the checkpoint: epoch") {
		t.Errorf("it continued after %d batches of %d: %s", result.ResumedAfterBatches, batches, last.log())
	}
	if result.ModelURL != alone.ModelURL || result.FinalAccuracy != alone.FinalAccuracy || !strings.HasPrefix(alone.ModelURL, "ipfs://Qm") {
		t.Errorf("the result is %+v, want %+v as without changes", result, alone)
	}
}

// readProgress returns the last progress that the task's program reported, and whether it has saved its state. It is empty for a program that
// has just started or has ended.
func readProgress(tb testing.TB, pid int) (progress float64, hasState bool) {
	tb.Helper()
	environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return 0, false
	}
	at := map[string]string{}
	for entry := range strings.SplitSeq(string(environ), "\x00") {
		name, value, _ := strings.Cut(entry, "=")
		at[name] = value
	}
	events, err := os.ReadFile(at["MUSTER_EVENTS"])
	if err != nil {
		return 0, false
	}
	for line := range bytes.Lines(events) {
		var e struct {
			Progress *float64 `json:"progress"`
		}
		if json.Unmarshal(line, &e) == nil && e.Progress != nil {
			progress = *e.Progress
		}
	}
	states, err := filepath.Glob(filepath.Join(at["MUSTER_CHECKPOINT"], "state-*.pt"))
	if err != nil {
		tb.Fatal(err)
	}
	return progress, len(states) > 0
}
