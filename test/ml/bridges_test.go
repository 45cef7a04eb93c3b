//go:build unix

package ml

import (
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/mustertest"
)

// TestWorkOverBridges connects a fleet to another Muster server with each of the four dialects, and runs real jobs.
func TestWorkOverBridges(t *testing.T) {
	redis, err := exec.LookPath("redis-server")
	if err != nil {
		t.Skip("skipped: redis-server is not installed: scripts/need redis-server")
	}
	var fleet *env
	isFull := os.Getenv("MUSTER_TEST_ML") != ""
	if isFull {
		fleet = newFullEnv(t, "--slots", "4")
	} else {
		fleet = newSystemEnv(t, []string{"torch", "sklearn", "pandas", "matplotlib", "PIL", "pytest"}, "--slots", "4")
	}
	ports := map[string]string{}
	for _, name := range []string{"redis", "qubix", "dtf", "trainforge", "mloc"} {
		ports[name] = mustertest.ReservePort(t)
	}
	_, port, err := net.SplitHostPort(ports["redis"])
	if err != nil {
		t.Fatal(err)
	}
	mustertest.StartProgram(t, redis, "redis", nil, "--bind", "127.0.0.1", "--port", port, "--save", "", "--dir", t.TempDir())
	database := "redis://" + ports["redis"] + "/0"
	outer := &env{t: t, Cluster: mustertest.NewWith(t, t.TempDir(), mustertest.Options{Flags: []string{
		"--dialect", "qubix=" + ports["qubix"], "--dialect", "dtf=" + ports["dtf"], "--dialect", "trainforge=" + ports["trainforge"],
		"--dialect", "mloc=" + ports["mloc"] + ",redis=" + database,
	}})}
	tests := t.TempDir()
	writeFile(t, tests, "test_sums.py", "def test_sum():\n    assert 1 + 1 == 2\n\ndef test_difference():\n    assert 2 - 1 == 1\n")
	for name, args := range map[string][]string{
		"qubix":      {"--backend", "http://" + ports["qubix"]},
		"dtf":        {"--coordinator", "http://" + ports["dtf"], "--api-key", mustertest.JoinToken, "--tests", tests},
		"trainforge": {"--scheduler", "http://" + ports["trainforge"]},
		"mloc":       nil,
	} {
		env := []string{"MUSTER_TOKEN=" + mustertest.AdminToken}
		if name == "mloc" {
			env = append(env, "REDIS_URL="+database, "RESULTS_DIR="+t.TempDir(), "WORKER_ID=bridge", "HEARTBEAT_INTERVAL_SEC=1", "ORCHESTRATOR_BASE_URL=http://"+ports["mloc"])
		}
		mustertest.StartMuster(t, name, env, append([]string{"bridge", name, "--server", "http://" + fleet.Addr, "--data", t.TempDir()}, args...)...)
	}
	example, err := filepath.Abs("../../examples/digits")
	if err != nil {
		t.Fatal(err)
	}
	files, err := outer.Client.UploadFolder(t.Context(), example, nil)
	if err != nil {
		t.Fatal(err)
	}
	train := func(s *muster.TaskSpec) {
		s.Files, s.Run = files, &muster.Command{Argv: []string{systemPython, "train.py", "--epochs", "5"}}
	}
	sum := func(s *muster.TaskSpec) {
		s.Script = &muster.Script{Text: "print(sum(range(101)))\n", Interpreter: []string{"python3"}}
	}
	type work struct {
		dialect, kind string
		input         any
		change        func(*muster.TaskSpec)
		want          string // in the result
	}
	list := []work{
		{"qubix", "mnist_training", map[string]any{"dataset": "digits", "limit": 400, "epochs": 1}, nil, `"finalAccuracy"`},
		{"qubix", "echo", map[string]any{"message": "hello"}, nil, "hello"},
		{"qubix", "script", nil, sum, "5050"},
		{"dtf", "test", map[string]any{"test_file": "test_sums.py"}, nil, `"passed":2`},
		{"dtf", "hash", map[string]any{"data": "abc"}, nil, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
		{"trainforge", "script", nil, train, `"accuracy"`},
		{"mloc", "echo", map[string]any{"message": "hello"}, nil, "hello"},
	}
	if isFull { // it needs transformers, which Debian does not have
		tiny := map[string]any{"model_type": "gpt2", "n_embd": 32, "n_layer": 2, "n_head": 2, "vocab_size": 100}
		for _, dialect := range []string{"dtf", "qubix"} {
			input := map[string]any{"config": tiny, "batch_sizes": []int{1, 4}, "iterations": 4, "device": "cpu"}
			list = append(list, work{dialect, "benchmark", input, nil, `"throughput"`})
		}
	}
	jobs := make([]muster.JobID, len(list))
	for i, work := range list {
		jobs[i] = outer.Submit(outer.taskSpec(work.kind, work.input, func(s *muster.TaskSpec) {
			s.Where.Tags = []string{"dialect:" + work.dialect}
			s.Timeout = muster.Duration(5 * time.Minute)
			if work.change != nil {
				work.change(s)
			}
		})).ID
	}
	for i, work := range list {
		t.Run(work.dialect+" "+work.kind, func(t *testing.T) {
			w := *outer
			w.t = t
			e := w.waitTasks(jobs[i])[0]
			var result json.RawMessage
			e.requireSucceeded(&result)
			if work.dialect == "trainforge" {
				e.file("confusion.png")
			}
			// A bridge that registers again while its workers join may reject an attempt, which does not count.
			if !strings.Contains(strings.ReplaceAll(string(result), " ", ""), work.want) || e.Retries+e.Crashes > 0 {
				t.Errorf("%d retries, %d crashes, result %s\n%s", e.Retries, e.Crashes, result, e.log())
			}
		})
	}
}
