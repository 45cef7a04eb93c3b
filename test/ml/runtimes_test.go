//go:build unix

package ml

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster"
)

// TestMissingPackagesOfAnInterpreter checks that missing packages are reported with a fix, and that kinds whose packages are installed run.
func TestMissingPackagesOfAnInterpreter(t *testing.T) {
	w := newSystemEnv(t, []string{"torch", "sklearn", "pandas", "matplotlib", "PIL"})
	w.runTask("mnist_training", map[string]any{"dataset": "digits", "limit": 100, "epochs": 1}).requireSucceeded(nil)
	var r trained
	w.runTask("training", map[string]any{"dataset": "iris", "model": "gbt", "epochs": 20}).requireSucceeded(&r)
	if r.FinalMetrics.FinalAccuracy < 0.9 {
		t.Errorf("iris: %+v", r)
	}
	// The worker does not offer what the interpreter cannot run, and says why.
	job := w.Submit(w.taskSpec("embedding", map[string]any{"model": "none/such", "input": "words"}))
	w.Await("the job waits for a worker with the kind", time.Minute, func() error {
		x, err := w.Client.Explain(t.Context(), muster.TaskID{Job: job.ID})
		if err == nil && !strings.Contains(fmt.Sprint(x), "does not run kind") {
			err = fmt.Errorf("it is explained as %+v", x)
		}
		return err
	})
	if log := w.Worker.Log(); !strings.Contains(log, "the interpreter "+systemPython+" lacks ") || !strings.Contains(log, "transformers>=5") {
		t.Errorf("the worker does not log what is missing:\n%s", log)
	}
}
