//go:build unix

package ml

import (
	"testing"

	"github.com/muster-dev/muster"
)

// TestWhatAGivenInterpreterLacks is said with what to do, and the kinds whose packages it has run.
func TestWhatAGivenInterpreterLacks(t *testing.T) {
	w := plain(t, []string{"torch", "sklearn", "pandas", "matplotlib", "PIL"})
	w.do("mnist_training", map[string]any{"dataset": "digits", "limit": 100, "epochs": 1}).succeeded(nil)
	var r trained
	w.do("training", map[string]any{"dataset": "iris", "model": "gbt", "epochs": 20}).succeeded(&r)
	if r.FinalMetrics.FinalAccuracy < 0.9 {
		t.Errorf("iris: %+v", r)
	}
	w.do("embedding", map[string]any{"model": "none/such", "input": "words"}).failed(muster.Dependency, "the interpreter "+system+" lacks ", "transformers>=5", "without --python")
}
