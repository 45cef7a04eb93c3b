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

// To install a package can mean to execute it: that sees what a task sees.
func TestBuildsAreIsolated(t *testing.T) {
	tool := isolatedTool(t)
	tmp := filepath.Join(tool.deps.Dir, "envs", ".build-1")
	if err := os.MkdirAll(tmp, 0o700); err != nil {
		t.Fatal(err)
	}
	var lines []string
	logLine := func(line string) { lines = append(lines, line) }
	err := tool.runBuild(t.Context(), "/bin/sh", tmp, nil, outputHandler{onLine: logLine}, "-c",
		`echo $HOME; echo built > built; cat built; cat ../../identity.json; echo x > ../stays; echo x > ../../cache/uv/fetched; echo end; exit 7`)
	if err == nil || !strings.Contains(err.Error(), "exit status 7") {
		t.Errorf("it ended with %v", err)
	}
	logged := strings.Join(lines, "\n")
	for _, want := range []string{tmp + "\nbuilt\n", "identity.json: Permission denied", "cannot create ../stays: Permission denied", "\nend"} {
		if !strings.Contains(logged, want) {
			t.Errorf("it does not contain %q, but %q", want, logged)
		}
	}
	if strings.Contains(logged, "a secret") {
		t.Error("it read the worker's identity")
	}
	if _, err := os.Stat(filepath.Join(tool.deps.Dir, "cache", "uv", "fetched")); err != nil {
		t.Errorf("what it fetched is not kept: %v", err)
	}
}

func TestIsolatedBuildEndsWithAllItStarted(t *testing.T) {
	tool := isolatedTool(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	cause := errors.New("stopped")
	tmp := t.TempDir()
	err := tool.runBuild(ctx, "/bin/sh", tmp, nil, outputHandler{onLine: func(line string) {
		if line == "ready" {
			cancel(cause)
		}
	}}, "-c", "sleep 1000 & echo ready; wait")
	if !errors.Is(err, cause) {
		t.Errorf("it ended with %v", err)
	}
	if err := tool.runBuild(t.Context(), "/bin/sh", tmp, nil, outputHandler{onLine: func(string) {}}, "-c", "sleep 1000 & exit 0"); err != nil {
		t.Errorf("one that leaves something behind ended with %v", err)
	}
	if err := tool.runBuild(t.Context(), filepath.Join(tmp, "none"), tmp, nil, outputHandler{onLine: func(string) {}}); err == nil {
		t.Error("what is not there is run")
	}
}
