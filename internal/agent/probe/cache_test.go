package probe

import (
	"context"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/gpu"
)

// The offer and the watches based on cached facts are those of the detected facts, as they were found.
func TestFactsAreCached(t *testing.T) {
	w := NewCache(t.TempDir(), "", slog.New(slog.DiscardHandler))
	if _, _, ok := w.read(time.Now()); ok {
		t.Error("a new worker remembers something")
	}
	a := muster.GPU{UUID: "GPU-a", Index: 1, Vendor: "nvidia", Name: "A100", Memory: 80 << 30}
	memory := muster.Size(3 << 30)
	f := Facts{
		Hostname: "rig", Tags: []string{"gpu"}, Notes: []string{"odd"},
		GPUs:      []gpu.Device{{GPU: a, Driver: "550", Reading: gpu.Reading{GPULoad: muster.GPULoad{UUID: a.UUID, Memory: &memory}}}},
		Resources: muster.Resources{CPUs: 4, Memory: 1 << 30, Slots: 8, GPUs: []muster.GPU{a}},
	}
	w.Write(f)
	got, known, ok := w.read(time.Now())
	if !ok || known != Stale {
		t.Fatalf("cached: %t, of age %d: devices may have been removed", ok, known)
	}
	if d := cmp.Diff(f.Resources, got.Resources) + cmp.Diff(f.Tags, got.Tags) + cmp.Diff(f.Notes, got.Notes); d != "" {
		t.Error(d)
	}
	if len(got.GPUs) != 1 || got.GPUs[0].GPU != a || got.GPUs[0].Driver != "550" {
		t.Errorf("the devices are %+v", got.GPUs)
	}
	if err := os.WriteFile(w.path, []byte(`{"hostname":`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, ok := w.read(time.Now()); ok {
		t.Error("a damaged file counts")
	}
}

// A worker that is restarted takes tasks at once by what its last process found out as lately as it would have relied on
// it itself, and looks at its machine first if anything may have changed since.
func TestRecentFactsAreNotProbedAgain(t *testing.T) {
	dir, log := t.TempDir(), slog.New(slog.DiscardHandler)
	w := NewCache(dir, "1", log)
	f := Facts{Hostname: "rig", Resources: muster.Resources{CPUs: 4, Disk: 1}}
	age := func(after time.Duration, w *Cache) Age {
		t.Helper()
		_, known, ok := w.read(time.Now().Add(after))
		if !ok {
			t.Fatal("nothing is cached")
		}
		return known
	}
	w.Write(f)
	upgraded := NewCache(dir, "2", log)
	switch {
	case age(0, w) != Recent, age(10*time.Minute, w) != Recent:
		t.Error("facts of a moment ago are not recent")
	case age(12*time.Minute, w) != Stale, age(-time.Hour, w) != Stale, age(0, upgraded) != Stale:
		t.Error("facts that may have changed are recent")
	}
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(w.path, old, old); err != nil {
		t.Fatal(err)
	}
	if age(0, w) != Stale {
		t.Error("old facts are recent")
	}
	if w.Touch(); age(0, w) != Recent {
		t.Error("after another probe the facts are not recent")
	}
	t.Setenv("PATH", "/elsewhere")
	if age(0, NewCache(dir, "1", log)) != Stale {
		t.Error("facts that were found with other programs are recent")
	}
	got, known, err := NewCache(dir, "1", log).Load(t.Context(), New(Config{Data: dir}), true)
	if err != nil || known != Stale || got.Resources.Disk <= 1 || got.Resources.CPUs != 4 {
		t.Errorf("facts of age %d with %+v (%v): free disk is measured in any case", known, got.Resources, err)
	}
}

// countingProbe counts how often it is asked.
type countingProbe struct {
	runs, refreshes int
}

func (p *countingProbe) Run(context.Context) (Facts, error) {
	p.runs++
	return Facts{Resources: muster.Resources{CPUs: 2}}, nil
}

func (p *countingProbe) Refresh(context.Context, *Facts) { p.refreshes++ }

// TestARestartedWorkerIsReadyWithoutAProbe checks that a worker uses recent facts of its previous process, and older ones only while it
// recovers tasks.
func TestARestartedWorkerIsReadyWithoutAProbe(t *testing.T) {
	t.Parallel()
	cache := NewCache(t.TempDir(), "", slog.New(slog.DiscardHandler))
	facts := func(when string, waiting bool, want Age, runs int) {
		t.Helper()
		p := &countingProbe{}
		f, known, err := cache.Load(t.Context(), p, waiting)
		if err != nil || known != want || p.runs != runs || p.refreshes != 1-runs || f.Resources.CPUs != 2 {
			t.Errorf("%s: %v CPUs, of age %d after %d probes and %d refreshes, %v; want age %d after %d probes", when, f.Resources.CPUs, known, p.runs, p.refreshes, err, want, runs)
		}
	}
	old := func() {
		t.Helper()
		at := time.Now().Add(-time.Hour)
		if err := os.Chtimes(cache.path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	facts("the first start", false, Current, 1)
	facts("a restart", false, Recent, 0)
	old()
	facts("a restart after an hour, with tasks that wait", true, Stale, 0)
	facts("a restart after an hour", false, Current, 1)
	facts("a restart after that", true, Recent, 0)
}
