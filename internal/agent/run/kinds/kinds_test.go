//go:build unix

package kinds_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/isolation"
	"github.com/muster-dev/muster/internal/agent/modelpool"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/run/kinds"
	"github.com/muster-dev/muster/internal/agent/run/runtest"
	"github.com/muster-dev/muster/internal/tasklog"
)

// testEnv is a worker with custom kinds.
type testEnv struct {
	*runtest.Env

	dir       string // of its kinds
	executors map[string]run.Executor
	next      int
	recorder  *runtest.Recorder // of the last task
}

// write makes a kind in the folder dir of files by name; programs are those without a suffix.
func write(t *testing.T, dir, name string, files map[string]string) {
	t.Helper()
	kindDir := filepath.Join(dir, name)
	if err := os.MkdirAll(kindDir, 0o755); err != nil {
		t.Fatal(err)
	}
	for file, text := range files {
		mode := os.FileMode(0o644)
		if filepath.Ext(file) == "" {
			mode = 0o755
		}
		if err := os.WriteFile(filepath.Join(kindDir, file), []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
}

func newTestEnv(t *testing.T, dir string, configure ...func(*kinds.Config)) *testEnv {
	t.Helper()
	w := &testEnv{Env: runtest.NewEnv(t), dir: dir, executors: map[string]run.Executor{}}
	ownerKinds, errs := kinds.Load(dir)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	cfg := kinds.Config{Deps: w.Deps, OwnerKinds: ownerKinds, Options: []string{"MUSTER_CUDA_STREAMS=4"}, Program: func(bool) (string, error) { return "/bin/echo", nil }}
	for _, f := range configure {
		f(&cfg)
	}
	list, err := kinds.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range list {
		w.executors[x.Kind()] = x
	}
	return w
}

// run runs a task of a kind and returns its report, its output and the log.
func (w *testEnv) run(t *testing.T, kind, input string, configure ...func(*run.Task)) (r muster.Report, out, logged string) {
	t.Helper()
	w.next++
	task := &run.Task{Attempt: muster.AttemptID{Task: muster.TaskID{Job: 1, Num: w.next}, N: 1}, Spec: &muster.TaskSpec{Kind: kind, Input: json.RawMessage(input)}}
	for _, f := range configure {
		f(task)
	}
	x := w.executors[kind]
	if x == nil {
		t.Fatalf("there is no executor of kind %s", kind)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*runtest.Timeout)
	defer cancel()
	w.recorder = &runtest.Recorder{}
	r = x.Run(ctx, task, w.recorder)
	return r, w.Output(t, task.Attempt, tasklog.Stdout), w.Output(t, task.Attempt, tasklog.System)
}

const showYAML = `
name: show
about: Show what it has.
entry: [./show, one]
run: may
models: true
env: {USUAL: kind, OTHER: kind}
input:
  type: object
  properties:
    n: {type: integer, minimum: 1}
`

// show prints what a task of its kind has, and changes what it may.
const show = `#!/bin/sh
echo "$# $*"
echo "$MUSTER_KIND $USUAL $OTHER $MUSTER_CUDA_STREAMS ${OMP_NUM_THREADS:-any}"
cat "$MUSTER_INPUT"; echo
cat "$MUSTER_KIND_DIR/note.txt"
[ "$HF_HOME" = "$MUSTER_MODELS/hf" ] || echo "HF_HOME is $HF_HOME"
[ "$MUSTER_MODEL_DISK" = 1073741824 ] || echo "MUSTER_MODEL_DISK is $MUSTER_MODEL_DISK"
mkdir -p "$HF_HOME" && echo x >> "$HF_HOME/x" && grep -c x "$HF_HOME/x"
touch "$MUSTER_KIND_DIR/changed" 2>/dev/null && echo "it may change its kind"
ls "$MUSTER_OWNER_MODELS" >/dev/null || echo "it cannot read the owner's models"
touch "$MUSTER_OWNER_MODELS/changed" 2>/dev/null && echo "it may change the owner's models"
exit 0
`

// TestTaskHasTheResourcesOfItsKind runs a kind's own program, with the limits of a real worker.
func TestTaskHasTheResourcesOfItsKind(t *testing.T) {
	users := []string{""}
	if os.Geteuid() == 0 {
		users = append(users, "nobody")
	}
	for _, user := range users {
		t.Run("as "+user, func(t *testing.T) {
			top := t.TempDir()
			if err := os.Chmod(filepath.Dir(top), 0o755); err != nil { // for the other user
				t.Fatal(err)
			}
			dir := filepath.Join(top, "kinds")
			write(t, dir, "show", map[string]string{"kind.yaml": showYAML, "show": show, "note.txt": "a note\n"})
			confined := true
			w := newTestEnv(t, dir, func(cfg *kinds.Config) {
				cfg.ModelDisk = 1 << 30
				for at := cfg.Deps.Dir; at != os.TempDir() && at != "/"; at = filepath.Dir(at) {
					if err := os.Chmod(at, 0o711); err != nil {
						t.Fatal(err)
					}
				}
				l, err := isolation.New(isolation.Config{Data: cfg.Deps.Dir, TaskUser: user, Log: cfg.Deps.Log})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(l.Close)
				cfg.Deps.Isolator = l
				confined = l.PrepareTool(nil, nil).Sandbox != nil
			})
			want := func(count, input string) string {
				return "1 one\nshow kind stage 4 2\n" + input + "\na note\n" + count + "\n"
			}
			stage := func(task *run.Task) {
				task.Spec.Env, task.Spec.Resources.CPUs = map[string]string{"OTHER": "stage"}, 1.5
			}
			r, out, logged := w.run(t, "show", `{"n": 3}`, stage)
			if out != want("1", `{"n": 3}`) && (confined || !strings.HasPrefix(out, want("1", `{"n": 3}`))) || r.Outcome != muster.AttemptSucceeded {
				t.Errorf("it is %s (%s), prints %q, and logs %q", r.Outcome, r.Message, out, logged)
			}
			// The folder of models is that of all tasks of the project.
			r, out, _ = w.run(t, "show", "", stage)
			if !strings.HasPrefix(out, want("2", "{}")) {
				t.Errorf("without an input, and after another task, it is %s (%s) and prints %q", r.Outcome, r.Message, out)
			}
			r, out, _ = w.run(t, "show", "", stage, func(task *run.Task) { task.Project = "other" })
			if !strings.HasPrefix(out, want("1", "{}")) {
				t.Errorf("in another project it is %s (%s) and prints %q", r.Outcome, r.Message, out)
			}
			// The words of the stage stand behind the kind's.
			_, out, _ = w.run(t, "show", "", func(task *run.Task) { task.Spec.Run = &muster.Command{Argv: []string{"a b", "c"}} })
			if !strings.HasPrefix(out, "3 one a b c\n") {
				t.Errorf("with its own arguments it prints %q", out)
			}
			// The worker validates the input again.
			r, out, _ = w.run(t, "show", `{"n": 0}`)
			if r.Reason != muster.BadInput || r.Message != "input.n: 0 is too small: write at least 1" || out != "" {
				t.Errorf("a wrong input ends %s: %s", r.Reason, r.Message)
			}
			if r, _, _ = w.run(t, "show", `{"n": "${a.result.n}"}`); r.Reason != muster.BadInput {
				t.Errorf("a text where a number has to be ends %s: %s", r.Reason, r.Message)
			}
		})
	}
}

// TestOperationsRunAsCustom runs an operation of the worker's owner by its name, and by kind custom.
func TestOperationsRunAsCustom(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "clean", map[string]string{
		"kind.yaml": "name: clean\nabout: Clean up.\noperation: true\nentry: [/bin/sh, -c, 'echo $MUSTER_KIND; cat $MUSTER_INPUT']\n" +
			"input: {type: object, properties: {days: {type: integer, minimum: 1}}}\n",
	})
	w := newTestEnv(t, dir)
	if w.executors["custom"] == nil {
		t.Skip("skipped: kind custom does not come with this build")
	}
	for kind, input := range map[string]string{"clean": `{"days": 2}`, "custom": `{"name": "clean", "parameters": {"days": 2}}`} {
		if r, out, _ := w.run(t, kind, input); out != "clean\n"+`{"days": 2}` {
			t.Errorf("by kind %s it is %s (%s) and prints %q", kind, r.Outcome, r.Message, out)
		}
	}
	if r, _, _ := w.run(t, "custom", `{"name": "clean", "parameters": {"days": 0}}`); r.Message != "input.parameters.days: 0 is too small: write at least 1" {
		t.Errorf("wrong parameters end %s: %s", r.Reason, r.Message)
	}
}

// fakeRuntimes are runtimes that are there.
type fakeRuntimes struct{ python, code string }

func (m fakeRuntimes) Get(_ context.Context, name string, _ run.Observer) (*run.Runtime, error) {
	if name != "core" {
		return nil, run.Failf(muster.Dependency, "there is no %s", name)
	}
	return &run.Runtime{Name: name, Python: m.python, ModuleDirs: []string{m.code}}, nil
}

func (m fakeRuntimes) ModuleDirs(string) ([]string, error) { return []string{m.code}, nil }

// fakeModelPool has one model server, or fails.
type fakeModelPool struct {
	fail      error
	calls     []string
	requested *modelpool.Request
	evicted   string
}

func (h *fakeModelPool) Acquire(_ context.Context, want *modelpool.Request, _ run.Observer) (string, func(), error) {
	h.calls, h.requested = append(h.calls, "socket"), want
	return "/run/the.sock", func() { h.calls = append(h.calls, "release") }, h.fail
}

func (h *fakeModelPool) Evict(_ context.Context, gpus []string, key string) error {
	h.calls, h.evicted = append(h.calls, "evict "+strings.Join(gpus, " ")), key
	return nil
}

func (h *fakeModelPool) FreeMemory(context.Context, muster.Size) { h.calls = append(h.calls, "room") }

// TestRuntimeAndHost runs a kind whose program is a module of a runtime, with a model server.
func TestRuntimeAndHost(t *testing.T) {
	python := "/usr/bin/python3"
	if _, err := os.Stat(python); err != nil {
		t.Skipf("skipped: %v", err)
	}
	dir, code := t.TempDir(), t.TempDir()
	for _, name := range []string{"ask", "cold"} {
		text := "name: " + name + "\nabout: Ask a model.\nentry: [python, -m, answer, word]\nruntime: core\nvariants: [{when: {engine: vllm}, runtime: vllm}]\nmerge_key: [model]\n" +
			"input: {type: object, properties: {model: {type: string}, engine: {type: string}}}\n"
		if name == "ask" {
			text += "warm: [python, -m, host]\n"
		}
		write(t, dir, name, map[string]string{"kind.yaml": text})
	}
	program := "import os, sys\nprint(sys.argv[1:], os.environ.get('MUSTER_WARM'))\nimport muster\n"
	if err := os.WriteFile(filepath.Join(code, "answer.py"), []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	h := &fakeModelPool{}
	w := newTestEnv(t, dir, func(cfg *kinds.Config) {
		cfg.Runtimes, cfg.ModelPool, cfg.Deps.ModelPool = fakeRuntimes{python, code}, h, h
	})
	gpu := func(task *run.Task) { task.Grant.GPUs = []string{"GPU-1"} }
	r, out, _ := w.run(t, "ask", `{"model": "m"}`, gpu)
	if out != "['word'] /run/the.sock\n" {
		t.Errorf("it is %s (%s) and prints %q", r.Outcome, r.Message, out)
	}
	if updates := w.recorder.Updates(); len(updates) == 0 || updates[len(updates)-1].Step == nil || *updates[len(updates)-1].Step != "loading libraries" {
		t.Errorf("while its program loads libraries %+v is shown", updates)
	}
	if want := []string{"evict GPU-1", "socket", "release"}; !slices.Equal(h.calls, want) || h.evicted != h.requested.Key || h.requested.Key == "" {
		t.Errorf("got calls %q, want %q; evicted except %q, requested %q", h.calls, want, h.evicted, h.requested.Key)
	}
	if h.requested.Argv[0] != python || !slices.Contains(h.requested.ReadDirs, code) || !slices.Contains(h.requested.GPUs, "GPU-1") {
		t.Errorf("the host is %+v", h.requested)
	}
	first := h.requested.Key
	if w.run(t, "ask", `{"model": "other"}`, gpu); h.requested.Key == first {
		t.Error("another model has the same host")
	}
	if w.run(t, "ask", `{"model": "m"}`, gpu, func(task *run.Task) { task.Project = "other" }); h.requested.Key == first {
		t.Error("another project has the same host")
	}
	h.calls, h.fail = nil, errors.New("it ended at once")
	r, out, logged := w.run(t, "ask", `{"model": "m"}`)
	if out != "['word'] None\n" || !strings.Contains(logged, "loading the model only for this task: it ended at once") {
		t.Errorf("without a host it is %s (%s), prints %q, and logs %q", r.Outcome, r.Message, out, logged)
	}
	h.calls = nil
	if w.run(t, "cold", "", gpu); !slices.Equal(h.calls, []string{"evict GPU-1", "room"}) || h.evicted != "" {
		t.Errorf("for a task without a host: got calls %q, evicted except %q", h.calls, h.evicted)
	}
	if r, _, _ = w.run(t, "ask", `{"engine": "vllm"}`); r.Reason != muster.Dependency || r.Message != "there is no vllm" {
		t.Errorf("the other runtime is not requested: %s: %s", r.Reason, r.Message)
	}
}

// TestLoad checks that Load returns an error for an invalid kind, and all other kinds.
func TestLoad(t *testing.T) {
	dir := t.TempDir()
	good := "name: %\nabout: Do it.\nentry: [./it]\n"
	kind := func(folder, text string) {
		write(t, dir, folder, map[string]string{"kind.yaml": text, "it": "#!/bin/sh\n"})
	}
	kind("a", strings.ReplaceAll(good, "%", "first"))
	kind("b", strings.ReplaceAll(good, "%", "echo"))
	kind("c", strings.ReplaceAll(good, "%", "first"))
	kind("d", "name: x\nabout: Do it.\nentri: [./it]\n")
	kind(".hidden", "nothing")
	write(t, dir, "empty", nil)
	if err := os.WriteFile(filepath.Join(dir, "README.md"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ownerKinds, errs := kinds.Load(dir)
	if len(ownerKinds) != 1 || ownerKinds[0].Name != "first" || ownerKinds[0].Dir != filepath.Join(dir, "a") {
		t.Errorf("it has %+v", ownerKinds)
	}
	var messages []string
	for _, err := range errs {
		messages = append(messages, strings.ReplaceAll(err.Error(), dir+"/", ""))
	}
	want := []string{
		"b: echo is a kind or operation of Muster: choose another name",
		"c: " + filepath.Join(dir, "a") + " also defines kind first: choose another name",
		"d/kind.yaml: line 3, column 1: entri: unknown field (did you mean entry?)",
		"empty: the folder has no kind.yaml",
	}
	for i := range want {
		want[i] = strings.ReplaceAll(want[i], dir+"/", "")
	}
	if !slices.Equal(messages, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(messages, "\n"), strings.Join(want, "\n"))
	}
	if ownerKinds, errs := kinds.Load(filepath.Join(dir, "nowhere")); ownerKinds != nil || errs != nil {
		t.Errorf("a missing folder: %v, %v", ownerKinds, errs)
	}
}
