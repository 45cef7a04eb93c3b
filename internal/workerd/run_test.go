package workerd

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/probe"
)

// errProbe is why failingProbe finds out nothing.
var errProbe = errors.New("the machine cannot be probed")

// failingProbe finds out nothing, and runs stop first.
type failingProbe struct {
	prober

	stop func()
}

func (p failingProbe) Run(context.Context) (probe.Facts, error) {
	p.stop()
	return probe.Facts{}, errProbe
}

// TestRunReturnsProbeErrors checks that a worker which cannot find out what its machine has does not end as if it
// had been stopped, unless it was.
func TestRunReturnsProbeErrors(t *testing.T) {
	t.Parallel()
	for name, stopped := range map[string]bool{"not stopped": false, "stopped": true} {
		w, err := New(Config{Server: "http://127.0.0.1:1", Data: t.TempDir()}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		w.newProbe = func(probe.Config) prober {
			if stopped {
				return failingProbe{stop: cancel}
			}
			return failingProbe{stop: func() {}}
		}
		if err := w.Run(ctx); stopped && err != nil || !stopped && !errors.Is(err, errProbe) {
			t.Errorf("%s: the worker ended with %v", name, err)
		}
	}
}

// countingProbe counts how often it is asked.
type countingProbe struct {
	prober

	runs, refreshes int
}

func (p *countingProbe) Run(context.Context) (probe.Facts, error) {
	p.runs++
	return probe.Facts{Resources: muster.Resources{CPUs: 2}}, nil
}

func (p *countingProbe) Refresh(context.Context, *probe.Facts) { p.refreshes++ }

// TestARestartedWorkerIsReadyWithoutAProbe checks that a worker uses recent facts of its previous process, and older ones only while it
// recovers tasks.
func TestARestartedWorkerIsReadyWithoutAProbe(t *testing.T) {
	t.Parallel()
	w := &Worker{cfg: Config{Data: t.TempDir()}, log: slog.New(slog.DiscardHandler)}
	facts := func(when string, waiting bool, want factsAge, runs int) {
		t.Helper()
		p := &countingProbe{}
		f, known, err := w.loadFacts(t.Context(), p, waiting)
		if err != nil || known != want || p.runs != runs || p.refreshes != 1-runs || f.Resources.CPUs != 2 {
			t.Errorf("%s: %v CPUs, of age %d after %d probes and %d refreshes, %v; want age %d after %d probes", when, f.Resources.CPUs, known, p.runs, p.refreshes, err, want, runs)
		}
	}
	old := func() {
		t.Helper()
		at := time.Now().Add(-time.Hour)
		if err := os.Chtimes(filepath.Join(w.cfg.Data, factsFile), at, at); err != nil {
			t.Fatal(err)
		}
	}
	facts("the first start", false, current, 1)
	facts("a restart", false, recent, 0)
	old()
	facts("a restart after an hour, with tasks that wait", true, stale, 0)
	facts("a restart after an hour", false, current, 1)
	facts("a restart after that", true, recent, 0)
}
