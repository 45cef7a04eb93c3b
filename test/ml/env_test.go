//go:build unix

package ml

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/mustertest"
)

// systemPython is the interpreter that Debian's packages are for.
const systemPython = "/usr/bin/python3"

// env is a server and a worker, w1, that runs the AI kinds.
type env struct {
	*mustertest.Cluster

	t      testing.TB
	Worker *mustertest.Process
	Data   string // the worker's data dir
}

// newSystemEnv starts a worker that uses the system's interpreter, which must have these modules.
func newSystemEnv(tb testing.TB, modules []string, flags ...string) *env {
	tb.Helper()
	requireModules(tb, modules...)
	return newEnv(tb, tb.TempDir(), append([]string{"--python", systemPython}, flags...)...)
}

// newFullEnv starts a worker with the runtimes of make test-ml, which are kept between runs.
func newFullEnv(tb testing.TB, flags ...string) *env {
	tb.Helper()
	if os.Getenv("MUSTER_TEST_ML") == "" {
		tb.Skip("skipped: it needs runtimes of several GiB: run make test-ml")
	}
	cacheDir, err := filepath.Abs("../../.ml")
	if err != nil {
		tb.Fatal(err)
	}
	data := tb.TempDir()
	for _, name := range []string{"runtimes", "cache", "tools"} {
		if err := os.MkdirAll(filepath.Join(cacheDir, name), 0o755); err != nil {
			tb.Fatal(err)
		}
		if err := os.Symlink(filepath.Join(cacheDir, name), filepath.Join(data, name)); err != nil {
			tb.Fatal(err)
		}
	}
	return newEnv(tb, data, flags...)
}

func newEnv(tb testing.TB, data string, flags ...string) *env {
	tb.Helper()
	tb.Setenv("OMP_NUM_THREADS", "2")
	w := &env{Cluster: mustertest.New(tb, tb.TempDir()), t: tb, Data: data}
	w.Worker = w.StartWorker("w1", data, flags...)
	return w
}

// requireModules skips the test if the system's interpreter lacks a module.
func requireModules(tb testing.TB, modules ...string) {
	tb.Helper()
	if testing.Short() {
		tb.Skip("skipped: it loads big libraries")
	}
	cmd := exec.CommandContext(tb.Context(), systemPython, "-I", "-c", "import importlib.util, sys\nsys.exit(' '.join(m for m in sys.argv[1:] if not importlib.util.find_spec(m)) or 0)")
	cmd.Args = append(cmd.Args, modules...)
	if out, err := cmd.CombinedOutput(); err != nil {
		tb.Skipf("skipped: %s does not have %s (%v): scripts/need torch installs what Debian has", systemPython, bytes.TrimSpace(out), err)
	}
}

// finishedTask is a task that has ended, with its files.
type finishedTask struct {
	muster.Task

	Files []muster.Artifact
	env   *env
}

// runTask runs one task of a kind to its end.
func (w *env) runTask(kind string, input any, change ...func(*muster.TaskSpec)) *finishedTask {
	w.t.Helper()
	return w.runJob(w.taskSpec(kind, input, change...))[0]
}

// taskSpec is a job of one task.
func (w *env) taskSpec(kind string, input any, change ...func(*muster.TaskSpec)) *muster.Spec {
	w.t.Helper()
	spec := muster.TaskSpec{Kind: kind}
	if input != nil {
		b, err := json.Marshal(input)
		if err != nil {
			w.t.Fatal(err)
		}
		spec.Input = b
	}
	for _, f := range change {
		f(&spec)
	}
	return &muster.Spec{Name: kind, Tasks: []muster.TaskSpec{spec}}
}

// runJob runs a job to its end, and returns its tasks in their order.
func (w *env) runJob(s *muster.Spec) []*finishedTask {
	w.t.Helper()
	return w.waitTasks(w.Submit(s).ID)
}

// waitTasks waits for the end of a job, and returns its tasks in their order.
func (w *env) waitTasks(job muster.JobID) []*finishedTask {
	w.t.Helper()
	w.Wait(job, 10*time.Minute)
	var all []*finishedTask
	for _, task := range w.Tasks(job) {
		files, err := w.Client.Artifacts(w.t.Context(), task.ID)
		if err != nil {
			w.t.Fatal(err)
		}
		all = append(all, &finishedTask{Task: task, Files: files, env: w})
	}
	slices.SortFunc(all, func(a, b *finishedTask) int { return a.Index - b.Index })
	return all
}

// requireSucceeded fails the test unless the task did, and reads its result.
func (e *finishedTask) requireSucceeded(result any) {
	e.env.t.Helper()
	if e.State != muster.Succeeded {
		e.env.t.Fatalf("task %s is %s (%s): %s\n%s", e.ID, e.State, e.Reason, e.Message, e.log())
	}
	if result == nil {
		return
	}
	if err := json.Unmarshal(e.Result, result); err != nil {
		e.env.t.Fatalf("the result of task %s is %s: %v", e.ID, e.Result, err)
	}
}

// requireFailed fails the test unless the task failed for this reason with these words in its message.
func (e *finishedTask) requireFailed(reason muster.Reason, words ...string) {
	e.env.t.Helper()
	if e.State != muster.Failed || e.Reason != reason {
		e.env.t.Fatalf("task %s is %s (%s): %s\n%s", e.ID, e.State, e.Reason, e.Message, e.log())
	}
	for _, word := range words {
		if !strings.Contains(e.Message, word) {
			e.env.t.Errorf("got message %[2]q, want %[1]q in it", word, e.Message)
		}
	}
}

// file reads an artifact.
func (e *finishedTask) file(name string) []byte {
	e.env.t.Helper()
	i := slices.IndexFunc(e.Files, func(a muster.Artifact) bool { return a.Name == name })
	if i < 0 {
		var names []string
		for _, a := range e.Files {
			names = append(names, a.Name)
		}
		e.env.t.Fatalf("task %s has no artifact %s, but %q", e.ID, name, names)
	}
	var b bytes.Buffer
	if err := e.env.Client.ReadArtifact(e.env.t.Context(), e.ID, e.Files[i], &b); err != nil {
		e.env.t.Fatal(err)
	}
	return b.Bytes()
}

// log returns the output of the task and the worker's messages in it.
func (e *finishedTask) log() string {
	e.env.t.Helper()
	var out []byte
	for line, err := range e.env.Client.Logs(e.env.t.Context(), e.ID, client.LogOptions{Follow: true}) {
		if err != nil {
			e.env.t.Fatal(err)
		}
		out = append(out, line.Data...)
	}
	return string(out)
}
