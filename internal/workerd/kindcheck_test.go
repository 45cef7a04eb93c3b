package workerd

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-dev/muster/internal/agent/probe"
	"github.com/muster-dev/muster/internal/kind"
)

// fakeMachine has runtimes, except those that lack something.
type fakeMachine struct {
	mu      sync.Mutex
	lacks   map[string]string // by runtime
	unknown bool              // nothing is likely without a check
	checks  int
	off     map[string]bool // kinds
	log     bytes.Buffer
}

// Write implements io.Writer for the log.
func (m *fakeMachine) Write(b []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.log.Write(b)
}

// setLacks changes what runtimes lack.
func (m *fakeMachine) setLacks(lacks map[string]string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lacks = lacks
}

// seen returns the number of checks and the log.
func (m *fakeMachine) seen() (checks int, log string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.checks, m.log.String()
}

func (m *fakeMachine) check() *runtimeCheck {
	m.off = map[string]bool{}
	return &runtimeCheck{
		kinds: []*kind.Kind{
			{Name: "embedding", Runtime: "torch"}, {Name: "training", Runtime: "torch"},
			{Name: "inference", Runtime: "torch", Variants: []kind.Variant{{Runtime: "core"}}}, {Name: "api", Runtime: "core"},
		},
		available: func(_ context.Context, name string) error {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.checks++
			if why := m.lacks[name]; why != "" {
				return errors.New(why)
			}
			return nil
		},
		likely:   func(string) bool { return !m.unknown },
		log:      slog.New(slog.NewTextHandler(m, nil)),
		disabled: map[string]string{}, failed: map[string]bool{},
	}
}

func (m *fakeMachine) enable(name string, on bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.off[name] = !on
}

func (m *fakeMachine) wantOff(t *testing.T, names ...string) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	got := slices.DeleteFunc(slices.Sorted(maps.Keys(m.off)), func(name string) bool { return !m.off[name] })
	if !slices.Equal(got, names) {
		t.Errorf("kinds %v are not offered, want %v", got, names)
	}
}

// TestKindsWithoutPackagesAreNotOffered checks that kinds are offered only while one of their runtimes can be had, and that their owner learns why.
func TestKindsWithoutPackagesAreNotOffered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &fakeMachine{unknown: true, lacks: map[string]string{"torch": "the interpreter lacks torch>=2"}}
		c := m.check()
		c.start(m.enable)
		m.wantOff(t, "api", "embedding", "inference", "training") // before the first offer
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- c.run(ctx) }()
		synctest.Wait()
		m.wantOff(t, "embedding", "training")
		checks, text := m.seen()
		if checks != 2 {
			t.Errorf("%d checks of two runtimes", checks)
		}
		if strings.Count(text, "level=") != 1 || !strings.Contains(text, "kinds are not offered: the interpreter lacks torch>=2") || !strings.Contains(text, "kinds=embedding,training") {
			t.Errorf("the log is\n%s", text)
		}
		time.Sleep(probe.Interval)
		synctest.Wait()
		_, text = m.seen()
		if n := strings.Count(text, "level="); n != 1 {
			t.Errorf("%d messages about the same reason", n)
		}
		m.setLacks(nil) // repaired
		time.Sleep(probe.Interval)
		synctest.Wait()
		m.wantOff(t)
		if _, text = m.seen(); !strings.Contains(text, "kinds are offered again") {
			t.Errorf("the log is\n%s", text)
		}
		m.setLacks(map[string]string{"core": "it does not answer"})
		time.Sleep(probe.Interval)
		synctest.Wait()
		m.wantOff(t) // the machine may be slow
		time.Sleep(probe.Interval)
		synctest.Wait()
		m.wantOff(t, "api")
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestLikelyKindsAreOfferedAtOnce checks that nothing is disabled on a machine with tools, unless the first check fails.
func TestLikelyKindsAreOfferedAtOnce(t *testing.T) {
	for _, lacks := range []bool{false, true} {
		m := &fakeMachine{}
		c := m.check()
		c.start(m.enable)
		m.wantOff(t)
		if lacks {
			m.lacks = map[string]string{"core": "no pip"}
		}
		c.check(t.Context())
		if m.lacks == nil {
			m.wantOff(t)
		} else {
			m.wantOff(t, "api")
		}
	}
}

// TestOfferedKinds checks what probe shows: kinds of the operator's interpreter, of the owner, without an engine, and not allowed.
func TestOfferedKinds(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the interpreter is a shell script")
	}
	dir := t.TempDir()
	python := filepath.Join(dir, "python")
	write := func(path, text string) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	write(python, "#!/bin/sh\ncase \"$*\" in *pandas*) lacks='\"pandas>=2\"';; esac\necho \"muster {\\\"lacks\\\": [$lacks], \\\"read\\\": []}\"\n")
	write(filepath.Join(dir, "kinds", "shout", "kind.yaml"), "name: shout\nabout: Shout.\nentry: [./shout]\n")
	write(filepath.Join(dir, "kinds", "shout", "shout"), "#!/bin/sh\n")
	write(filepath.Join(dir, "kinds", "bad", "kind.yaml"), "name: bad\n")
	cfg := Config{Data: dir, Python: python}
	got, err := cfg.OfferedKinds(t.Context(), &probe.Facts{System: probe.System{OS: "linux"}})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"noop": true, "process": true, "container": false, "echo": true, "shout": true, "data": false, "bad": false} {
		if slices.Contains(got.Offered, name) != want {
			t.Errorf("%s offered: %t; all are %v", name, !want, got.Offered)
		}
	}
	var reasons []string
	for _, w := range got.Withheld {
		reasons = append(reasons, strings.Join(w.Kinds, ",")+": "+w.Reason)
	}
	text := strings.Join(reasons, "\n")
	for _, want := range []string{"container: no container engine is ready", "data", "the interpreter " + python + " lacks pandas>=2", "bad/kind.yaml"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}

	cfg = Config{Data: dir, Kinds: []string{"shout", "container"}}
	got, err = cfg.OfferedKinds(t.Context(), &probe.Facts{System: probe.System{OS: "linux"}, Engines: []probe.Engine{{Name: "docker", Socket: "/run/docker.sock"}}})
	if err != nil || !slices.Equal(got.Offered, []string{"container", "shout"}) {
		t.Errorf("allowed kinds: %+v, %v", got, err)
	}
}
