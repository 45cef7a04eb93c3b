package probe

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// programs makes these, which run a script of a shell, all that is on the PATH.
func programs(t *testing.T, scripts map[string]string) {
	t.Helper()
	dir := t.TempDir()
	for name, script := range scripts {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir)
}

// A worker that is to use no container engine does not ask for one.
func TestDisabledEngineIsNotQueried(t *testing.T) {
	programs(t, map[string]string{"podman": "exec /bin/sleep 60", "nerdctl": "exec /bin/sleep 60"})
	p := New(Config{Data: t.TempDir(), Engine: NoEngine})
	f, err := p.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if took, asked := f.Took["engines"]; asked || f.Engines == nil || len(f.Engines) > 0 {
		t.Errorf("engines were queried for %g s: %+v", took, f.Engines)
	}
}

// Engines are asked at the same time: one that hangs keeps no other waiting.
func TestEnginesAreQueriedConcurrently(t *testing.T) {
	dir := t.TempDir()
	meet := func(own, other string) string { // answers once the other one has been asked
		return "> " + filepath.Join(dir, own) + "; while [ ! -e " + filepath.Join(dir, other) + " ]; do /bin/sleep 0.1; done; exit 1"
	}
	programs(t, map[string]string{"podman": meet("podman", "nerdctl"), "nerdctl": meet("nerdctl", "podman")})
	h := thisHost()
	h.toolTimeout = time.Minute
	_, notes := h.engines(t.Context(), t.TempDir())
	failed := 0
	for _, note := range notes {
		if strings.Contains(note, "failed") {
			failed++
		}
	}
	if failed != 2 {
		t.Errorf("noted %q", notes)
	}
}
