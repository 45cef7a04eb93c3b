//go:build unix

package ml

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/muster-dev/muster"
)

// TestTuningSurvivesItsWorker checks that a training whose worker is killed continues from its checkpoint, to a model
// that the next stage trains further, and that what is wrong with a data set is reported with its line.
func TestTuningSurvivesItsWorker(t *testing.T) {
	w := newFullEnv(t)
	dir := t.TempDir()
	runScript(t, "trl", "../../runtimes/python/trl/tests/tiny_models.py", "llama", filepath.Join(dir, "llama"))
	rows := strings.Repeat(`{"prompt": "red cat", "completion": " sat"}`+"\n"+`{"prompt": "old birds", "completion": " fly"}`+"\n", 4)
	for name, text := range map[string]string{"facts.jsonl": rows, "broken.jsonl": rows + "{\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	files, err := w.Client.UploadFolder(t.Context(), dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	const steps = 300
	input := func(dataset string) json.RawMessage {
		training := fmt.Sprintf(`{"max_steps": %d, "batch_size": 8, "learning_rate": 0.001, "save_steps": 10, "log_steps": 50}`, steps)
		return json.RawMessage(`{"model": "llama", "dataset": "` + dataset + `", "training": ` + training + `}`)
	}
	job := w.Submit(&muster.Spec{Tasks: []muster.TaskSpec{{Kind: "sft", Input: input("facts.jsonl"), Files: files, Retries: muster.Retries{Max: 3}}}})
	w.Await("a checkpoint", 5*time.Minute, func() error {
		if task := w.Tasks(job.ID)[0]; task.Progress == nil || *task.Progress < 0.05 {
			return fmt.Errorf("it is %s: %s", task.State, task.Message)
		}
		return nil
	})
	w.Worker.Kill()
	killed := processesMatching(t, "muster_trl.kind", w.Data)
	if len(killed) == 0 {
		t.Fatal("the task's program does not run")
	}
	for _, pid := range killed {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	w.Worker = w.StartWorker("w1", w.Data)
	done := w.waitTasks(job.ID)[0]
	var result struct {
		ModelURL     string `json:"modelUrl"`
		Steps        int
		FinalMetrics struct{ FinalLoss float64 }
	}
	done.requireSucceeded(&result)
	if result.Steps != steps || !strings.HasPrefix(result.ModelURL, "ipfs://Qm") || result.FinalMetrics.FinalLoss > 0.1 {
		t.Errorf("the result is %s", done.Result)
	}
	if done.Attempt < 2 || !strings.Contains(done.log(), "continuing from checkpoint-") {
		t.Errorf("attempt %d did not continue from a checkpoint: %s", done.Attempt, done.log())
	}
	if names := archiveNames(t, done.file("final_model.tar.gz")); !slices.Contains(names, "final_model/model.safetensors") {
		t.Errorf("the archive has %q", names)
	}
	w.runTask("sft", nil, func(s *muster.TaskSpec) { s.Input, s.Files = input("broken.jsonl"), files }).requireFailed(muster.BadInput, "broken.jsonl, line 9 is not JSON")
}

// runScript executes a script of the tests with the runtime that has a module.
func runScript(tb testing.TB, module, script string, args ...string) {
	tb.Helper()
	envs, err := filepath.Glob("../../.ml/runtimes/envs/*/bin/python")
	if err != nil {
		tb.Fatal(err)
	}
	i := slices.IndexFunc(envs, func(python string) bool {
		return exec.CommandContext(tb.Context(), python, "-c", "import importlib.util, sys; sys.exit(not importlib.util.find_spec(sys.argv[1]))", module).Run() == nil
	})
	if i < 0 {
		tb.Skipf("skipped: no runtime with %s is made yet: run make test-ml", module)
	}
	cmd := exec.CommandContext(tb.Context(), envs[i], append([]string{script}, args...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		tb.Fatalf("%s: %v\n%s", script, err, out)
	}
}

// processesMatching are the processes that have a word in their command line and another in their environment.
func processesMatching(tb testing.TB, word, env string) []int {
	tb.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		tb.Fatal(err)
	}
	var found []int
	for _, name := range lines {
		line, vanished := os.ReadFile(name)
		around, closed := os.ReadFile(filepath.Join(filepath.Dir(name), "environ"))
		if vanished != nil || closed != nil || !bytes.Contains(line, []byte(word)) || !bytes.Contains(around, []byte(env)) {
			continue
		}
		var pid int
		if _, err := fmt.Sscanf(name, "/proc/%d/", &pid); err == nil {
			found = append(found, pid)
		}
	}
	return found
}

func archiveNames(tb testing.TB, archive []byte) []string {
	tb.Helper()
	unzipped, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		tb.Fatal(err)
	}
	var names []string
	for r := tar.NewReader(unzipped); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return names
		}
		if err != nil {
			tb.Fatal(err)
		}
		names = append(names, h.Name)
	}
}
