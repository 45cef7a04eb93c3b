//go:build unix

package ml

import (
	"bytes"
	"encoding/json"
	"image/png"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/client"
)

// TestBenchmark checks that a benchmark has a run for each combination, and names the device.
func TestBenchmark(t *testing.T) {
	w := newFullEnv(t)
	var result struct {
		Model  string
		System struct {
			Cores    int
			Packages map[string]string
		}
		Runs []struct {
			BatchSize  int `json:"batch_size"`
			Precision  string
			Throughput float64
			Error      struct{ Reason string }
		}
	}
	bert := map[string]any{"model_type": "bert", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64, "vocab_size": 100}
	done := w.runTask("benchmark", map[string]any{"config": bert, "batch_sizes": []int{1, 4}, "precision": []string{"fp32", "tf32"}, "iterations": 3, "device": "cpu"})
	done.requireSucceeded(&result)
	if len(result.Runs) != 4 || result.System.Cores < 1 || result.System.Packages["torch"] == "" {
		t.Fatalf("the result is %s", done.Result)
	}
	for _, r := range result.Runs {
		if fp32 := r.Precision == "fp32"; fp32 != (r.Throughput > 0) || fp32 != (r.Error.Reason == "") {
			t.Errorf("a run is %+v", r)
		}
	}
	var raw struct {
		Runs []struct {
			Latencies []float64 `json:"latencies_ms"`
		} `json:"runs"`
	}
	if err := json.Unmarshal(done.file("benchmark.json"), &raw); err != nil || len(raw.Runs[0].Latencies) != 3 {
		t.Errorf("benchmark.json has %+v, %v", raw, err)
	}
}

// TestOperations checks that an unknown operation is refused at submit with the list of known ones, and the error of a worker that cannot
// reach the hub.
func TestOperations(t *testing.T) {
	w := newFullEnv(t)
	_, err := w.Client.Submit(t.Context(), &muster.Spec{Tasks: []muster.TaskSpec{{Kind: "custom", Input: json.RawMessage(`{"name": "dance"}`)}}}, client.SubmitOptions{})
	if muster.CodeOf(err) != muster.InvalidSpec || !strings.Contains(err.Error(), "setup_environment") {
		t.Errorf("an unknown operation: %v", err)
	}
	var result struct {
		Done []struct {
			Removed []string
			InUse   []string `json:"in_use"`
		}
	}
	w.runTask("custom", map[string]any{"name": "clear_cache"}).requireSucceeded(&result)
	if len(result.Done) != 1 {
		t.Errorf("it did %+v", result.Done)
	}
	missing := func(s *muster.TaskSpec) { s.Env = map[string]string{"HF_ENDPOINT": "http://127.0.0.1:9"} }
	w.runTask("custom", map[string]any{"name": "setup_environment", "parameters": map[string]any{"prepare_models": []string{"bert"}}}, missing).
		requireFailed(muster.Dependency, "google-bert/bert-base-uncased", "hub cannot be reached")
}

// TestStableDiffusion checks that images have URLs, and that the error names missing files of a model.
func TestStableDiffusion(t *testing.T) {
	w := newFullEnv(t)
	dir := t.TempDir()
	envs, err := filepath.Glob("../../.ml/runtimes/envs/*/bin/python")
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(envs, func(python string) bool {
		return exec.CommandContext(t.Context(), python, "-c", "import importlib.util, sys; sys.exit(not importlib.util.find_spec('diffusers'))").Run() == nil
	})
	if i < 0 {
		t.Skip("skipped: the runtime diffusers is not made yet: run make test-ml")
	}
	tiny := exec.CommandContext(t.Context(), envs[i], "../../runtimes/python/diffusers/tests/tiny_pipelines.py", dir)
	if out, err := tiny.CombinedOutput(); err != nil {
		t.Fatalf("a tiny pipeline: %v\n%s", err, out)
	}
	files, err := w.Client.UploadFolder(t.Context(), dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	bring := func(s *muster.TaskSpec) { s.Files = files }
	var result struct {
		Images []struct{ Name, URL string }
		Count  int
	}
	done := w.runTask("stable_diffusion", map[string]any{"prompt": "a cat", "num_images": 2, "steps": 2, "seed": 7, "model": "plain", "safety": "off"}, bring)
	done.requireSucceeded(&result)
	if result.Count != 2 || !strings.HasPrefix(result.Images[1].URL, "ipfs://Qm") {
		t.Fatalf("the result is %s", done.Result)
	}
	if _, err := png.Decode(bytes.NewReader(done.file("image-0002.png"))); err != nil {
		t.Error(err)
	}
	w.runTask("stable_diffusion", map[string]any{"prompt": "a cat", "model": "plain"}, bring).requireFailed(muster.Dependency, "no safety checker", "safety: off")
}
