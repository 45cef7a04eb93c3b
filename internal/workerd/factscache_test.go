package workerd

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/gpu"
	"github.com/muster-dev/muster/internal/agent/probe"
)

// The offer and the watches based on cached facts are those of the detected facts, as they were found.
func TestFactsAreCached(t *testing.T) {
	w := &Worker{cfg: Config{Data: t.TempDir()}, log: slog.New(slog.DiscardHandler)}
	if _, _, ok := w.readFacts(time.Now()); ok {
		t.Error("a new worker remembers something")
	}
	a := muster.GPU{UUID: "GPU-a", Index: 1, Vendor: "nvidia", Name: "A100", Memory: 80 << 30}
	memory := muster.Size(3 << 30)
	f := probe.Facts{
		Hostname: "rig", Tags: []string{"gpu"}, Notes: []string{"odd"},
		GPUs:      []gpu.Device{{GPU: a, Driver: "550", Reading: gpu.Reading{GPULoad: muster.GPULoad{UUID: a.UUID, Memory: &memory}}}},
		Resources: muster.Resources{CPUs: 4, Memory: 1 << 30, Slots: 8, GPUs: []muster.GPU{a}},
	}
	w.writeFacts(f)
	got, known, ok := w.readFacts(time.Now())
	if !ok || known != stale {
		t.Fatalf("cached: %t, of age %d: devices may have been removed", ok, known)
	}
	if d := cmp.Diff(f.Resources, got.Resources) + cmp.Diff(f.Tags, got.Tags) + cmp.Diff(f.Notes, got.Notes); d != "" {
		t.Error(d)
	}
	if len(got.GPUs) != 1 || got.GPUs[0].GPU != a || got.GPUs[0].Driver != "550" {
		t.Errorf("the devices are %+v", got.GPUs)
	}
	if err := os.WriteFile(filepath.Join(w.cfg.Data, factsFile), []byte(`{"hostname":`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, ok := w.readFacts(time.Now()); ok {
		t.Error("a damaged file counts")
	}
}

// A worker that is restarted takes tasks at once by what its last process found out as lately as it would have relied on
// it itself, and looks at its machine first if anything may have changed since.
func TestRecentFactsAreNotProbedAgain(t *testing.T) {
	w := &Worker{cfg: Config{Data: t.TempDir(), Version: "1"}, log: slog.New(slog.DiscardHandler)}
	f := probe.Facts{Hostname: "rig", Resources: muster.Resources{CPUs: 4, Disk: 1}}
	age := func(after time.Duration, w *Worker) factsAge {
		t.Helper()
		_, known, ok := w.readFacts(time.Now().Add(after))
		if !ok {
			t.Fatal("nothing is cached")
		}
		return known
	}
	w.writeFacts(f)
	upgraded := &Worker{cfg: Config{Data: w.cfg.Data, Version: "2"}}
	switch {
	case age(0, w) != recent, age(10*time.Minute, w) != recent:
		t.Error("facts of a moment ago are not recent")
	case age(12*time.Minute, w) != stale, age(-time.Hour, w) != stale, age(0, upgraded) != stale:
		t.Error("facts that may have changed are recent")
	}
	old := time.Now().Add(-time.Hour)
	path := filepath.Join(w.cfg.Data, factsFile)
	if err := os.Chtimes(path, old, old); err != nil {
		t.Fatal(err)
	}
	if age(0, w) != stale {
		t.Error("old facts are recent")
	}
	if w.touchFacts(); age(0, w) != recent {
		t.Error("after another probe the facts are not recent")
	}
	t.Setenv("PATH", "/elsewhere")
	if age(0, w) != stale {
		t.Error("facts that were found with other programs are recent")
	}
	t.Setenv("PATH", os.Getenv("PATH"))
	got, known, err := w.loadFacts(t.Context(), probe.New(probe.Config{Data: w.cfg.Data}), true)
	if err != nil || known != stale || got.Resources.Disk <= 1 || got.Resources.CPUs != 4 {
		t.Errorf("facts of age %d with %+v (%v): free disk is measured in any case", known, got.Resources, err)
	}
}
