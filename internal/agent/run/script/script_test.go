package script_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/run/process"
	"github.com/muster-dev/muster/internal/agent/run/runtest"
	"github.com/muster-dev/muster/internal/agent/run/script"
	"github.com/muster-dev/muster/internal/tasklog"
)

func TestContract(t *testing.T) {
	if testing.Short() {
		t.Skip("the contract of process is enough for -short")
	}
	runtest.Run(t, func(deps *process.Deps) (run.Executor, error) { return script.New(deps) })
}

// testEnv runs scripts one after the other.
type testEnv struct {
	*runtest.Env
	x    run.Executor
	next int
}

func newTestEnv(t *testing.T, configure ...func(*process.Deps)) *testEnv {
	t.Helper()
	w := &testEnv{Env: runtest.NewEnv(t)}
	for _, f := range configure {
		f(w.Deps)
	}
	var err error
	if w.x, err = script.New(w.Deps); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *testEnv) run(t *testing.T, spec *muster.TaskSpec) (muster.Report, string) {
	t.Helper()
	w.next++
	id := muster.AttemptID{Task: muster.TaskID{Job: 1, Num: w.next}, N: 1}
	ctx, cancel := context.WithTimeout(t.Context(), 4*runtest.Timeout)
	defer cancel()
	r := w.x.Run(ctx, &run.Task{Attempt: id, Spec: spec}, &runtest.Recorder{})
	return r, w.Output(t, id, tasklog.Stdout)
}

func TestInterpreterSelection(t *testing.T) {
	w := newTestEnv(t)
	python, _ := exec.LookPath("python3")
	for _, c := range []struct {
		script muster.Script
		prints string
		needs  string
	}{
		{script: muster.Script{Text: "echo $0 $1", Args: []string{"a b"}}, prints: "./script a b\n"},
		{script: muster.Script{Text: "hello", Interpreter: []string{"cat", "-A"}}, prints: "hello"},
		{script: muster.Script{Text: "#!/bin/cat\nhello"}, prints: "#!/bin/cat\nhello"},
		{script: muster.Script{Text: "#!/usr/bin/env -S cat -E\nx\n"}, prints: "#!/usr/bin/env -S cat -E$\nx$\n"},
		{script: muster.Script{Text: "print(1+1)"}, prints: "2\n", needs: python},
		{script: muster.Script{Text: "import sys\nprint(sys.argv[1])", Args: []string{"a"}}, prints: "a\n", needs: python},
		{script: muster.Script{Text: "print(1+1)", File: "src/sum.py"}, prints: "2\n", needs: python},
		{script: muster.Script{Text: "print(1+1)", Interpreter: []string{"python3", "-u"}}, prints: "2\n", needs: python},
	} {
		if c.needs == "" && strings.HasPrefix(c.script.Text, "print") {
			continue
		}
		r, out := w.run(t, &muster.TaskSpec{Script: &c.script})
		if r.Outcome != muster.AttemptSucceeded || out != c.prints {
			t.Errorf("%+v printed %q: %s", c.script, out, r.Message)
		}
	}
}

func TestScriptDoesNotReplaceAFileOfTheProject(t *testing.T) {
	w := newTestEnv(t)
	spec := &muster.TaskSpec{Script: &muster.Script{Text: "cat script; echo mine"}, Files: w.Tree(map[string]string{"script": "the project's\n"})}
	if r, out := w.run(t, spec); r.Outcome != muster.AttemptSucceeded || out != "the project's\nmine\n" {
		t.Errorf("printed %q: %s", out, r.Message)
	}
}

func TestURL(t *testing.T) {
	mux := http.NewServeMux()
	text := "echo fetched"
	mux.HandleFunc("/ok/run.sh", func(rw http.ResponseWriter, _ *http.Request) { fmt.Fprint(rw, text) })
	mux.HandleFunc("/gone", http.NotFound)
	mux.HandleFunc("/cut", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	mux.HandleFunc("/broken", func(rw http.ResponseWriter, _ *http.Request) { http.Error(rw, "", http.StatusBadGateway) })
	mux.HandleFunc("/loop", func(rw http.ResponseWriter, req *http.Request) { http.Redirect(rw, req, "/loop", http.StatusFound) })
	mux.HandleFunc("/file", func(rw http.ResponseWriter, req *http.Request) {
		http.Redirect(rw, req, "file:///etc/passwd", http.StatusFound)
	})
	mux.HandleFunc("/huge", func(rw http.ResponseWriter, _ *http.Request) {
		block := make([]byte, 1<<20)
		for range 17 {
			if _, err := rw.Write(block); err != nil {
				return
			}
		}
	})
	srv := httptest.NewServer(mux)
	defer srv.Close()
	sum := sha256.Sum256([]byte(text))
	right := hex.EncodeToString(sum[:])

	open := newTestEnv(t, func(e *process.Deps) { e.AllowPrivateURLs = true })
	for _, c := range []struct {
		path, hash string
		reason     muster.Reason
		wantErr    string
	}{
		{"/ok/run.sh", "", "", ""},
		{"/ok/run.sh", right, "", ""},
		{"/ok/run.sh", strings.Repeat("0", 64), muster.TaskInvalid, right},
		{"/gone", "", muster.TaskInvalid, "404"},
		{"/broken", "", muster.FetchFailed, "502"},
		{"/cut", "", muster.FetchFailed, "/cut: EOF"},
		{"/loop", "", muster.TaskInvalid, "/loop: it redirects more than 5 times"},
		{"/file", "", muster.TaskInvalid, "/file: file:///etc/passwd is not an http"},
		{"/huge", "", muster.TaskInvalid, "larger than 16MiB"},
	} {
		r, out := open.run(t, &muster.TaskSpec{Script: &muster.Script{URL: srv.URL + c.path, SHA256: c.hash}})
		if r.Reason != c.reason || !strings.Contains(r.Message, c.wantErr) || c.reason == "" && out != "fetched\n" {
			t.Errorf("%s: %s %q %q", c.path, r.Reason, r.Message, out)
		}
	}
	closed := newTestEnv(t)
	for _, url := range []string{srv.URL + "/ok/run.sh", strings.Replace(srv.URL, "127.0.0.1", "localhost", 1) + "/ok/run.sh", "http://[::ffff:127.0.0.1]:1/", "http://169.254.169.254/latest", "http://0.0.0.0:1/"} {
		r, _ := closed.run(t, &muster.TaskSpec{Script: &muster.Script{URL: url}})
		if r.Reason != muster.TaskInvalid || !strings.Contains(r.Message, "not public") {
			t.Errorf("%s: %s %q", url, r.Reason, r.Message)
		}
	}
	for _, url := range []string{"file:///etc/passwd", "ftp://example.org/x", "http://", "::"} {
		if r, _ := closed.run(t, &muster.TaskSpec{Script: &muster.Script{URL: url}}); r.Reason != muster.TaskInvalid {
			t.Errorf("%s: %s %q", url, r.Reason, r.Message)
		}
	}
}

func TestPythonModuleReachesEveryTask(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("skipped: this machine has no python3")
	}
	w := newTestEnv(t)
	r, out := w.run(t, &muster.TaskSpec{
		Script: &muster.Script{File: "train.py", Text: `
import muster
assert muster.running()
muster.progress(0.5, step="half", loss=0.1)
muster.save("notes.txt", "hello")
muster.result({"accuracy": 0.97, "index": muster.index()})
print("done")
`},
	})
	if r.Outcome != muster.AttemptSucceeded || out != "done\n" || string(r.Result) != `{"accuracy": 0.97, "index": "0"}` ||
		len(r.Artifacts) != 1 || r.Artifacts[0].Name != "notes.txt" {
		t.Errorf("printed %q: %+v", out, r)
	}
}

func TestPythonEnvironmentWithoutItsRequirements(t *testing.T) {
	w := newTestEnv(t)
	r, _ := w.run(t, &muster.TaskSpec{Run: &muster.Command{Shell: "true"}, Python: &muster.Python{Requirements: "requirements.txt"}})
	if r.Reason != muster.Dependency || !strings.Contains(r.Message, "requirements.txt does not exist in the task's folder") {
		t.Errorf("%s %q", r.Reason, r.Message)
	}
}

func TestTaskRunsInItsPythonEnvironment(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped: it downloads a package")
	}
	w := newTestEnv(t)
	spec := &muster.TaskSpec{
		Files:  w.Tree(map[string]string{"requirements.txt": "six==1.17.0\n", "main.py": "import six, sys, muster\nprint(six.__version__, sys.argv[1])\n"}),
		Run:    &muster.Command{Shell: `test "$(command -v python)" = "$VIRTUAL_ENV/bin/python" && python main.py ok && env`},
		Python: &muster.Python{Requirements: "requirements.txt"},
	}
	t.Setenv("PIP_RETRIES", "2")
	t.Setenv("UV_HTTP_RETRIES", "2")
	r, out := w.run(t, spec)
	if r.Reason == muster.Dependency && strings.Contains(r.Message, "etch") {
		t.Skipf("skipped: no package index can be reached: %s", r.Message)
	}
	if r.Outcome != muster.AttemptSucceeded || !strings.HasPrefix(out, "1.17.0 ok\n") {
		t.Errorf("printed %q: %s", out, r.Message)
	}
	if strings.Contains(out, "PIP_") || strings.Contains(out, "UV_") {
		t.Errorf("the worker's settings leak into the task:\n%s", out)
	}
	if logged := w.Output(t, r.Attempt, tasklog.System); !strings.Contains(logged, "installing 1 package") || !strings.Contains(logged, "uv: ") {
		t.Errorf("the log is %q", logged)
	}
	if r, out = w.run(t, spec); r.Outcome != muster.AttemptSucceeded || w.Output(t, r.Attempt, tasklog.System) != "" {
		t.Errorf("the second task rebuilt it: %q: %s", out, r.Message)
	}
}
