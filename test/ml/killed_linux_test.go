package ml

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/muster-dev/muster"
)

// TestTrainingSurvivesAllThatIsKilled has a training lose, in the middle of an epoch, first its worker, which comes back and goes on
// with the same program, then that program, and its worker for good: another one goes on from the checkpoint, to the very
// bytes of a training that was left alone.
func TestTrainingSurvivesAllThatIsKilled(t *testing.T) {
	const epochs, size, images = 4, 4, 1437
	w := plain(t, []string{"torch", "sklearn", "matplotlib"}, "--slots", "1")
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
	calm := w.Submit(w.one("mnist_training", input, saved))
	w.Running(calm.ID, 1) // on w1, which has no room for another
	data := t.TempDir()
	worker := w.StartWorker("w2", data, "--python", system)
	job := w.Submit(w.one("mnist_training", input, saved))
	// trains waits until the program has done more than so much of its work, and holds it there.
	trains := func(beyond float64) (pid int, now float64) {
		t.Helper()
		w.Await("the training goes on", 3*time.Minute, func() error {
			task := w.Tasks(job.ID)[0]
			if task.Progress == nil || *task.Progress <= beyond || task.Checkpoint == "" {
				return fmt.Errorf("it is %s (%s) at %v, with the checkpoint %q", task.State, task.Message, task.Progress, task.Checkpoint)
			}
			now = *task.Progress
			return nil
		})
		pids := programs(t, "muster_torch.mnist", data)
		if len(pids) != 1 {
			t.Fatalf("the programs of the training are %v", pids)
		}
		if err := syscall.Kill(pids[0], syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		return pids[0], now
	}
	pid, done := trains(0)
	worker.Kill()
	worker = w.StartWorker("w2", data, "--python", system)
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	again, _ := trains(done)
	if again != pid {
		t.Errorf("process %d goes on with the training of process %d", again, pid)
	}

	w.StartWorker("w3", t.TempDir(), "--python", system)
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
	last := w.await(job.ID)[0]
	last.succeeded(&result)
	w.await(calm.ID)[0].succeeded(&alone)
	attempts, err := w.Client.Attempts(t.Context(), last.ID)
	if err != nil || len(attempts) != 2 || attempts[0].Reason != muster.Signal || attempts[0].Worker == attempts[1].Worker {
		t.Fatalf("the attempts are %+v, %v", attempts, err)
	}
	if batches := epochs * images / size; result.ResumedAfterBatches == 0 || result.ResumedAfterBatches >= batches || !strings.Contains(last.log(), "going on from the checkpoint: epoch") {
		t.Errorf("it went on after %d batches of %d: %s", result.ResumedAfterBatches, batches, last.log())
	}
	if result.ModelURL != alone.ModelURL || result.FinalAccuracy != alone.FinalAccuracy || !strings.HasPrefix(alone.ModelURL, "ipfs://Qm") {
		t.Errorf("it came to %+v, and left alone to %+v", result, alone)
	}
}
