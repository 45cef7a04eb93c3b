package doctor

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/internal/serverd"
)

const (
	adminToken = "doctor-admin-token-0123456789"
	joinToken  = "doctor-join-token-0123456789"
)

// startServer runs a real server until the test ends, and returns its URL.
func startServer(t *testing.T) string {
	t.Helper()
	s, err := serverd.New(t.Context(), serverd.Config{Listen: "127.0.0.1:0", Data: t.TempDir(), AdminToken: adminToken, JoinToken: joinToken, Version: "1.2.3"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("the server: %v", err)
		}
	})
	return s.URL()
}

// testConfig has unreachable addresses and uses nothing of this machine. Its timeouts are long, because a busy machine cannot be distinguished
// from a broken one.
func testConfig(t *testing.T) Config {
	t.Helper()
	return Config{Data: filepath.Join(t.TempDir(), "worker"), Listen: "127.0.0.1:0", Version: "1.2.3", Engine: "unix://" + filepath.Join(t.TempDir(), "no.sock"), timeouts: timeouts{total: 2 * time.Minute, step: time.Minute, disk: time.Minute}}
}

// runChecks runs the checks of these names only.
func runChecks(t *testing.T, cfg Config, names ...string) []Finding {
	t.Helper()
	d := New(cfg)
	d.checks = checksNamed(names...)
	found, err := d.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func checksNamed(names ...string) (selected []check) {
	for _, c := range checks() {
		for _, name := range names {
			if c.name == name {
				selected = append(selected, c)
			}
		}
	}
	return selected
}

// wantFinding checks that there is a finding, and returns it.
func wantFinding(t *testing.T, found []Finding, name string, s Status, parts ...string) Finding {
	t.Helper()
	for _, f := range found {
		if f.Name != name {
			continue
		}
		if f.Status != s {
			t.Errorf("%s is %s, not %s: %s", name, f.Status, s, f.Found)
		}
		for _, part := range parts {
			if !strings.Contains(f.Found+" → "+f.Fix, part) {
				t.Errorf("%s does not say %q: %s → %s", name, part, f.Found, f.Fix)
			}
		}
		if (s == Problem || s == Warning) && f.Fix == "" {
			t.Errorf("%s says no fix: %s", name, f.Found)
		}
		return f
	}
	t.Errorf("no finding %s: %v", name, found)
	return Finding{}
}

// discardLog discards its messages.
var discardLog = slog.New(slog.DiscardHandler)

// wantNoFinding checks that there is no finding of a name.
func wantNoFinding(t *testing.T, found []Finding, name string) {
	t.Helper()
	for _, f := range found {
		if f.Name == name {
			t.Errorf("unexpected finding %s: %s %s", name, f.Status, f.Found)
		}
	}
}

// writeFile writes a file below a folder that represents the machine's root.
func writeFile(t *testing.T, root, path, text string) {
	t.Helper()
	path = filepath.Join(root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// unusedAddr is an address without a listener: the system does not assign this port as a free one.
const unusedAddr = "127.0.0.1:1"
