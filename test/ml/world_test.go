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

// system is the interpreter that Debian's packages are for.
const system = "/usr/bin/python3"

// world is a server and a worker, w1, that runs the AI kinds.
type world struct {
	*mustertest.Cluster

	t      testing.TB
	Worker *mustertest.Proc
	Data   string // the worker's data dir
}

// plain has a worker that uses the system's interpreter, which must have these modules.
func plain(tb testing.TB, modules []string, flags ...string) *world {
	tb.Helper()
	need(tb, modules...)
	return start(tb, tb.TempDir(), append([]string{"--python", system}, flags...)...)
}

// full has a worker with the runtimes of make test-ml, which are kept between runs.
func full(tb testing.TB, flags ...string) *world {
	tb.Helper()
	if os.Getenv("MUSTER_TEST_ML") == "" {
		tb.Skip("skipped: it needs runtimes of several GiB: run make test-ml")
	}
	kept, err := filepath.Abs("../../.ml")
	if err != nil {
		tb.Fatal(err)
	}
	data := tb.TempDir()
	for _, name := range []string{"runtimes", "cache", "tools"} {
		if err := os.MkdirAll(filepath.Join(kept, name), 0o755); err != nil {
			tb.Fatal(err)
		}
		if err := os.Symlink(filepath.Join(kept, name), filepath.Join(data, name)); err != nil {
			tb.Fatal(err)
		}
	}
	return start(tb, data, flags...)
}

func start(tb testing.TB, data string, flags ...string) *world {
	tb.Helper()
	tb.Setenv("OMP_NUM_THREADS", "2")
	w := &world{Cluster: mustertest.New(tb, tb.TempDir()), t: tb, Data: data}
	w.Worker = w.StartWorker("w1", data, flags...)
	return w
}

// need skips the test if the system's interpreter lacks a module.
func need(tb testing.TB, modules ...string) {
	tb.Helper()
	if testing.Short() {
		tb.Skip("skipped: it loads big libraries")
	}
	cmd := exec.CommandContext(tb.Context(), system, "-I", "-c", "import importlib.util, sys\nsys.exit(' '.join(m for m in sys.argv[1:] if not importlib.util.find_spec(m)) or 0)")
	cmd.Args = append(cmd.Args, modules...)
	if out, err := cmd.CombinedOutput(); err != nil {
		tb.Skipf("skipped: %s does not have %s (%v): scripts/need torch installs what Debian has", system, bytes.TrimSpace(out), err)
	}
}

// ended is a task that has ended, with what it left.
type ended struct {
	muster.Task

	Files []muster.Artifact
	w     *world
}

// do runs one task of a kind to its end.
func (w *world) do(kind string, input any, change ...func(*muster.TaskSpec)) *ended {
	w.t.Helper()
	return w.submit(w.one(kind, input, change...))[0]
}

// one is a job of one task.
func (w *world) one(kind string, input any, change ...func(*muster.TaskSpec)) *muster.Spec {
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

// submit runs a job to its end, and returns its tasks in their order.
func (w *world) submit(s *muster.Spec) []*ended {
	w.t.Helper()
	return w.await(w.Submit(s).ID)
}

// await waits for the end of a job, and returns its tasks in their order.
func (w *world) await(job muster.JobID) []*ended {
	w.t.Helper()
	w.Wait(job, 10*time.Minute)
	var all []*ended
	for _, task := range w.Tasks(job) {
		files, err := w.Client.Artifacts(w.t.Context(), task.ID)
		if err != nil {
			w.t.Fatal(err)
		}
		all = append(all, &ended{Task: task, Files: files, w: w})
	}
	slices.SortFunc(all, func(a, b *ended) int { return a.Index - b.Index })
	return all
}

// succeeded fails the test unless the task did, and reads its result.
func (e *ended) succeeded(result any) {
	e.w.t.Helper()
	if e.State != muster.Succeeded {
		e.w.t.Fatalf("task %s is %s (%s): %s\n%s", e.ID, e.State, e.Reason, e.Message, e.log())
	}
	if result == nil {
		return
	}
	if err := json.Unmarshal(e.Result, result); err != nil {
		e.w.t.Fatalf("the result of task %s is %s: %v", e.ID, e.Result, err)
	}
}

// failed fails the test unless the task did, for this reason and with these words in what it says.
func (e *ended) failed(reason muster.Reason, words ...string) {
	e.w.t.Helper()
	if e.State != muster.Failed || e.Reason != reason {
		e.w.t.Fatalf("task %s is %s (%s): %s\n%s", e.ID, e.State, e.Reason, e.Message, e.log())
	}
	for _, word := range words {
		if !strings.Contains(e.Message, word) {
			e.w.t.Errorf("%q is not in %q", word, e.Message)
		}
	}
}

// file reads an artifact.
func (e *ended) file(name string) []byte {
	e.w.t.Helper()
	i := slices.IndexFunc(e.Files, func(a muster.Artifact) bool { return a.Name == name })
	if i < 0 {
		var names []string
		for _, a := range e.Files {
			names = append(names, a.Name)
		}
		e.w.t.Fatalf("task %s left no %s, but %q", e.ID, name, names)
	}
	var b bytes.Buffer
	if err := e.w.Client.Read(e.w.t.Context(), e.ID, e.Files[i], &b); err != nil {
		e.w.t.Fatal(err)
	}
	return b.Bytes()
}

// log is all that the task printed, and what the worker said of it.
func (e *ended) log() string {
	e.w.t.Helper()
	var out []byte
	for line, err := range e.w.Client.Logs(e.w.t.Context(), e.ID, client.LogOptions{Follow: true}) {
		if err != nil {
			e.w.t.Fatal(err)
		}
		out = append(out, line.Data...)
	}
	return string(out)
}
