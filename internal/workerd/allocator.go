package workerd

import (
	"slices"

	"github.com/muster-dev/muster/internal/agent/devices"
	"github.com/muster-dev/muster/internal/agent/gpu"
	"github.com/muster-dev/muster/internal/agent/modelpool"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/shim/proctree"
	"github.com/muster-dev/muster/internal/link"
)

// newAllocator returns the allocator of the worker's GPUs. If the facts are stale, their readings do not count. Model servers may have
// devices, like recovered attempts.
func (w *Worker) newAllocator(found []gpu.Device, stale bool, readings *gpu.Stream, recovered []run.Recovered, orphans []modelpool.Orphan, withhold func(map[string]string)) *devices.Allocator {
	cfg := devices.Config{Data: w.cfg.Data, BootID: proctree.BootID(), Readings: readings, Withhold: withhold, Log: w.log}
	for i := range recovered {
		cfg.Recovered = append(cfg.Recovered, recovered[i].Start.Attempt)
	}
	for i := range orphans {
		cfg.Recovered = append(cfg.Recovered, orphans[i].Attempt)
	}
	if stale {
		found = slices.Clone(found)
		for i := range found {
			found[i].Reading = gpu.Reading{}
		}
	}
	return devices.New(cfg, found)
}

// healer passes the devices that an administrator wants to heal to the allocator.
func healer(b *devices.Allocator) func([]string) {
	return func(uuids []string) {
		if slices.Contains(uuids, link.HealAll) {
			uuids = nil
		}
		b.Heal(uuids...)
	}
}
