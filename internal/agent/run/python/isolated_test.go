//go:build linux

package python

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-dev/muster/internal/agent/isolation"
	"github.com/muster-dev/muster/internal/agent/run"
)

// isolatedTool is the tool of a worker that holds it, in a data dir with a secret.
func isolatedTool(t *testing.T) *tool {
	t.Helper()
	if isolation.Describe(isolation.Config{}).Landlock < 1 {
		t.Skip("skipped: this kernel has no Landlock")
	}
	data := t.TempDir()
	if err := os.WriteFile(filepath.Join(data, "identity.json"), []byte("a secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := isolation.New(isolation.Config{Data: data, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return &tool{deps: &run.Deps{Dir: data, Isolator: l}}
}

// TestBuildsAreIsolated checks that code of a package that is built sees what a task sees, runs with the user of builds, and can change its own folder
// and its project's cache only: not the cache or the environment of another project, the shared cache, or the worker's files; nor see the worker's variables.
func TestBuildsAreIsolated(t *testing.T) {
	t.Setenv("MUSTER_JOIN_TOKEN", "a secret")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "a secret")
	t.Setenv("UV_CACHE_DIR", "/nowhere") // the owner's, which only packages without a build step use
	tool := isolatedTool(t)
	data := tool.deps.Dir
	tmp := filepath.Join(data, "envs", ".build-1")
	cache, other := tool.cacheOf(&Spec{Project: "mine"}), tool.cacheOf(&Spec{Project: "theirs"})
	env := filepath.Join(data, "envs", "theirs")
	shared := tool.cacheDir()
	for _, dir := range []string{tmp, other, env, shared} {
		if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, "module.py"), []byte("a secret"), 0o644)); err != nil {
			t.Fatal(err)
		}
		if os.Geteuid() == 0 { // as another build left it
			tool.deps.Isolator.PrepareTool(nil, []string{dir})
		}
	}
	if err := os.Remove(filepath.Join(tmp, "module.py")); err != nil {
		t.Fatal(err)
	}
	var lines []string
	logLine := func(line string) { lines = append(lines, line) }
	script := `id -u; echo $HOME $UV_CACHE_DIR; env; echo built > built; cat built; cat ` + data + `/identity.json; echo x > ../stays; echo x > ` + cache + `/fetched
		for d in ` + strings.Join([]string{other, env, shared}, " ") + `; do
			cat $d/module.py; echo evil 2>&1 >>$d/module.py; echo evil 2>&1 >$d/new.py; ln $d/module.py mine; rm -f $d/module.py; mv $d away
		done
		cat /proc/$PPID/environ; echo end; exit 7`
	err := tool.runBuild(t.Context(), "/bin/sh", tmp, cache, nil, nil, outputHandler{onLine: logLine}, "-c", script)
	if err == nil || !strings.Contains(err.Error(), "exit status 7") {
		t.Errorf("it ended with %v", err)
	}
	logged := strings.Join(lines, "\n")
	for _, want := range []string{tmp + " " + cache + "\n", "\nbuilt\n", "identity.json: Permission denied", "cannot create ../stays: Permission denied", "\nend"} {
		if !strings.Contains(logged, want) {
			t.Errorf("it does not contain %q, but %q", want, logged)
		}
	}
	if strings.Contains(logged, "a secret") || os.Geteuid() == 0 && strings.HasPrefix(logged, "0\n") {
		t.Errorf("it is root, or has read what is not its own:\n%s", logged)
	}
	for _, dir := range []string{other, env, shared} {
		text, err := os.ReadFile(filepath.Join(dir, "module.py"))
		if entries, e := os.ReadDir(dir); err != nil || e != nil || string(text) != "a secret" || len(entries) != 1 {
			t.Errorf("%s has %v, with %q: %v %v", dir, entries, text, err, e)
		}
	}
	if _, err := os.Stat(filepath.Join(cache, "fetched")); err != nil {
		t.Errorf("what it fetched is not kept: %v", err)
	}
}

func TestIsolatedBuildEndsWithAllItStarted(t *testing.T) {
	tool := isolatedTool(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	cause := errors.New("stopped")
	tmp := t.TempDir()
	err := tool.runBuild(ctx, "/bin/sh", tmp, "", nil, nil, outputHandler{onLine: func(line string) {
		if line == "ready" {
			cancel(cause)
		}
	}}, "-c", "sleep 1000 & echo ready; wait")
	if !errors.Is(err, cause) {
		t.Errorf("it ended with %v", err)
	}
	if err := tool.runBuild(t.Context(), "/bin/sh", tmp, "", nil, nil, outputHandler{onLine: func(string) {}}, "-c", "sleep 1000 & exit 0"); err != nil {
		t.Errorf("one that leaves something behind ended with %v", err)
	}
	if err := tool.runBuild(t.Context(), filepath.Join(tmp, "none"), tmp, "", nil, nil, outputHandler{onLine: func(string) {}}); err == nil {
		t.Error("what is not there is run")
	}
}
