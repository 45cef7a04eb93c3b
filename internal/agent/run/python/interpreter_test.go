//go:build unix

package python

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-dev/muster/internal/agent/run"
)

// Checking an environment executes code of its packages, which must not see the worker's secrets.
func TestAnEnvironmentSeesNothingOfTheWorkers(t *testing.T) {
	t.Setenv("MUSTER_JOIN_TOKEN", "a secret")
	e := New(&run.Deps{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	dir := e.Path("x")
	if err := os.MkdirAll(filepath.Join(dir, "bin"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{markerFile: `{"python": "bin"}`, "bin/python": "#!/bin/sh\nenv > seen\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.use(t.Context(), "x"); err != nil {
		t.Errorf("it is not usable: %v", err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "seen")); err != nil || strings.Contains(string(b), "a secret") {
		t.Errorf("it sees %q, %v", b, err)
	}
}
