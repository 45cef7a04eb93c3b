package work

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/gpu"
	"github.com/muster-dev/muster/internal/agent/probe"
)

// What is offered and watched by what is remembered is what was found.
func TestFactsAreRemembered(t *testing.T) {
	w := &Worker{cfg: Config{Data: t.TempDir()}, log: slog.New(slog.DiscardHandler)}
	if _, ok := w.remembered(); ok {
		t.Error("a new worker remembers something")
	}
	a := muster.GPU{UUID: "GPU-a", Index: 1, Vendor: "nvidia", Name: "A100", Memory: 80 << 30}
	memory := muster.Size(3 << 30)
	f := probe.Facts{
		Hostname: "rig", Tags: []string{"gpu"}, Notes: []string{"odd"},
		GPUs:      []gpu.Device{{GPU: a, Driver: "550", Reading: gpu.Reading{GPULoad: muster.GPULoad{UUID: a.UUID, Memory: &memory}}}},
		Resources: muster.Resources{CPUs: 4, Memory: 1 << 30, Slots: 8, GPUs: []muster.GPU{a}},
	}
	w.remember(f)
	got, ok := w.remembered()
	if !ok {
		t.Fatal("nothing is remembered")
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
	if _, ok := w.remembered(); ok {
		t.Error("a damaged file counts")
	}
}
