//go:build linux

package kinds_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/container"
	"github.com/muster-dev/muster/internal/agent/docker"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/run/kinds"
	"github.com/muster-dev/muster/internal/mustertest"
	"github.com/muster-dev/muster/internal/mustertest/containertest"
	"github.com/muster-dev/muster/internal/testkit"
)

// TestKindInAContainer runs kinds in containers: a custom one, and one whose program belongs to the worker.
func TestKindInAContainer(t *testing.T) {
	engine, err := docker.Open(containertest.SharedEngine(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = engine.Close() })
	b := containertest.ShellImage(t)
	b.Links["/usr/bin"] = "/bin"
	b.Texts["/bin/python3"] = `#!/bin/sh
[ "$1" = -c ] || exec echo python3 "$@"
shift 3
for requirement; do lacks="$lacks${lacks:+, }\"$requirement\""; done
echo "muster {\"lacks\": [$lacks]}"
` // has no packages
	image := containertest.LoadImage(t, containertest.SharedEngine(t), fmt.Sprintf("muster-test/kinds:%d", os.Getpid()), b)
	dir, code := t.TempDir(), t.TempDir()
	write(t, dir, "show", map[string]string{"kind.yaml": showYAML, "show": show, "note.txt": "a note\n"})
	write(t, dir, "code", map[string]string{"kind.yaml": "name: code\nabout: Show where its Python is.\nruntime: core\nentry: [/bin/sh, -c, 'echo $PYTHONPATH; ls /muster/code-0']\n"})
	for name, runtime := range map[string]string{"snake": "core", "big": "torch"} {
		write(t, dir, name, map[string]string{"kind.yaml": "name: " + name + "\nabout: Be a program of Python.\nruntime: " + runtime + "\nentry: [python, -m, answer]\n"})
	}
	if err := os.WriteFile(filepath.Join(code, "answer.py"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	program := mustertest.Program(t)
	var containers *container.Containers
	w := newTestEnv(t, dir, func(cfg *kinds.Config) {
		containers, err = container.New(container.Config{
			Engine: engine, Worker: fmt.Sprintf("k%d", os.Getpid()), Dir: cfg.Deps.Dir, Allow: &muster.Allow{}, Log: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		testkit.Await(t, "the engine is ready", func() bool { return containers.Check(t.Context()) == nil })
		cfg.ModelDisk = 1 << 30
		cfg.Deps.Containers, cfg.Runtimes, cfg.ModelPool = containers, fakeRuntimes{code: code}, &fakeModelPool{fail: errors.New("a container has no host")}
		cfg.Program = func(portable bool) (string, error) {
			if !portable {
				t.Error("a program of the worker only is requested")
			}
			return program, nil
		}
	})
	inContainer := func(task *run.Task) { task.Spec.Image, task.Spec.Isolation = image, muster.IsolationContainer }
	for n := range 2 {
		want := "1 one\nshow kind kind 4 any\n{\"n\": 3}\na note\n" + strconv.Itoa(n+1) + "\n"
		if r, out, logged := w.run(t, "show", `{"n": 3}`, inContainer); out != want || r.Image == "" {
			t.Errorf("it is %s (%s) in %q, prints %q, and logs %q", r.Outcome, r.Message, r.Image, out, logged)
		}
	}
	inAnother := func(task *run.Task) { inContainer(task); task.Project = "other" }
	if r, out, _ := w.run(t, "show", `{"n": 3}`, inAnother); out != "1 one\nshow kind kind 4 any\n{\"n\": 3}\na note\n1\n" {
		t.Errorf("in another project it is %s (%s) and prints %q", r.Outcome, r.Message, out)
	}
	if r, out, _ := w.run(t, "code", "", inContainer); out != "/muster/code-0:/muster/sdk\nanswer.py\n" {
		t.Errorf("it is %s (%s) and prints %q", r.Outcome, r.Message, out)
	}
	if r, out, _ := w.run(t, "snake", "", inContainer); out != "python3 -m answer\n" || r.Outcome != muster.AttemptSucceeded {
		t.Errorf("it is %s (%s) and prints %q", r.Outcome, r.Message, out)
	}
	if r, out, _ := w.run(t, "big", "", inContainer); r.Reason != muster.Dependency || !strings.Contains(r.Message, "the image "+image+" lacks torch>=") {
		t.Errorf("it is %s (%s: %s) and prints %q", r.Outcome, r.Reason, r.Message, out)
	}
	r, _, logged := w.run(t, "echo", `{"a": [1]}`, inContainer)
	var back map[string][]int
	if err := json.Unmarshal(r.Result, &back); err != nil || len(back["a"]) != 1 || r.Outcome != muster.AttemptSucceeded {
		t.Errorf("echo is %s (%s) with %s, and logs %q", r.Outcome, r.Message, r.Result, logged)
	}
	// One that may run as either does so, with all that it needs, where its container cannot be.
	auto := func(task *run.Task) {
		inContainer(task)
		task.Spec.Isolation, task.Spec.Container = muster.IsolationAuto, &muster.Container{Capabilities: []string{"NET_RAW"}}
	}
	if r, out, logged := w.run(t, "show", `{"n": 3}`, auto); !strings.HasPrefix(out, "1 one\n") || r.Outcome != muster.AttemptSucceeded || (r.Image == "") != strings.Contains(logged, "runs as a process") {
		t.Errorf("as either it is %s (%s) in %q, prints %q, and logs %q", r.Outcome, r.Message, r.Image, out, logged)
	}
}
