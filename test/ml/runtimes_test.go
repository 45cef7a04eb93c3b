//go:build unix

package ml

import (
	"testing"

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
	w.runTask("embedding", map[string]any{"model": "none/such", "input": "words"}).requireFailed(muster.Dependency, "the interpreter "+systemPython+" lacks ", "transformers>=5", "without --python")
}
