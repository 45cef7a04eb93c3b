//go:build unix

package ml

import (
	"errors"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// loaded is the part of a result about the task's model.
type loaded struct {
	Seconds float64 `json:"load_seconds"`
	Warm    bool
	Used    float64 `json:"seconds"` // how long the task worked with it
}

// newModelPoolEnv starts a worker with --cache-models, and a model in GPT-2's format in its folder of models.
func newModelPoolEnv(tb testing.TB, size ...string) *env {
	tb.Helper()
	w := newFullEnv(tb, "--cache-models")
	runScript(tb, "transformers", "../../runtimes/python/transformers/tests/tiny.py", append([]string{filepath.Join(w.Data, "models", "gpt")}, size...)...)
	return w
}

// generateWord runs a task that generates one word with the model.
func (w *env) generateWord() (*finishedTask, loaded) {
	w.t.Helper()
	var l loaded
	done := w.runTask("inference", map[string]any{"model": "gpt", "input": "the cat", "max_new_tokens": 1, "device": "cpu"})
	done.requireSucceeded(&l)
	return done, l
}

// TestModelStaysLoaded in one process for the next task, also over the death of the worker, until it was not used for its time.
func TestModelStaysLoaded(t *testing.T) {
	w := newModelPoolEnv(t)
	host := func() []int { return processesMatching(t, "muster_transformers.host", w.Data) }
	if _, l := w.generateWord(); l.Warm || l.Seconds <= 0 {
		t.Errorf("the first task took %+v", l)
	}
	first := host()
	if len(first) != 1 {
		t.Fatalf("the hosts are %v", first)
	}
	if _, l := w.generateWord(); !l.Warm || !slices.Equal(host(), first) {
		t.Errorf("the second task took %+v, in %v instead of %v", l, host(), first)
	}
	w.Worker.Kill()
	w.Worker = w.StartWorker("w1", w.Data, "--cache-models")
	if _, l := w.generateWord(); !l.Warm || !slices.Equal(host(), first) {
		t.Errorf("the restarted worker took %+v, in %v instead of %v", l, host(), first)
	}
	w.Worker.Kill()
	w.Worker = w.StartWorker("w1", w.Data, "--cache-models", "--cache-models-ttl", "1s")
	w.Await("an unused host has ended", time.Minute, func() error {
		if len(host()) > 0 {
			return errors.New("it lives")
		}
		return nil
	})
	if _, l := w.generateWord(); l.Warm {
		t.Errorf("after its end it is %+v", l)
	}
}

// BenchmarkWarm measures the overhead of a task, from its start to its end, with a loaded model of 43 million weights (170 MB), compared with
// the first task, which loads it, and the time that it waits for the model server.
func BenchmarkWarm(b *testing.B) {
	const rounds = 7
	for b.Loop() {
		w := newModelPoolEnv(b, "768", "6")
		_, cold := w.generateWord()
		if cold.Warm {
			b.Fatal("the first task found the model loaded")
		}
		var waits, starts []float64
		for range rounds {
			done, l := w.generateWord()
			if !l.Warm {
				b.Fatal("the model did not stay loaded")
			}
			waits, starts = append(waits, l.Seconds), append(starts, float64(done.FinishedAt-done.StartedAt)/1000-l.Used)
		}
		slices.Sort(waits)
		slices.Sort(starts)
		b.ReportMetric(cold.Seconds, "load-s")
		b.ReportMetric(waits[rounds/2], "warm-wait-s")
		b.ReportMetric(starts[rounds/2], "warm-start-s")
		b.ReportMetric(100*starts[rounds/2]/cold.Seconds, "%-of-load")
	}
	b.ReportMetric(0, "ns/op")
}
