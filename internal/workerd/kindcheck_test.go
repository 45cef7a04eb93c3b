package workerd

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"maps"
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
