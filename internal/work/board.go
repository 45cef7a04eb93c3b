package work

import (
	"slices"

	"github.com/muster-dev/muster/internal/agent/devices"
	"github.com/muster-dev/muster/internal/agent/gpu"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/shim/kin"
	"github.com/muster-dev/muster/internal/agent/warm"
	"github.com/muster-dev/muster/internal/link"
)

// board makes the board of the worker's GPUs. Of what is stale the readings do not
// count. Hosts of models may have devices as held attempts do.
func (w *Worker) board(found []gpu.Device, stale bool, readings *gpus, held []run.Held, hosts []warm.Leftover, withhold func(map[string]string)) *devices.Board {
	cfg := devices.Config{Data: w.cfg.Data, Boot: kin.BootID(), Readings: readings, Withhold: withhold, Log: w.log}
	for i := range held {
		cfg.Held = append(cfg.Held, held[i].Start.Attempt)
	}
	for i := range hosts {
		cfg.Held = append(cfg.Held, hosts[i].Attempt)
	}
	if stale {
		found = slices.Clone(found)
		for i := range found {
			found[i].Reading = gpu.Reading{}
		}
	}
	return devices.New(cfg, found)
}

// heal passes on which devices an administrator wants to be looked at again.
func heal(b *devices.Board) func([]string) {
	return func(uuids []string) {
		if slices.Contains(uuids, link.HealAll) {
			uuids = nil
		}
		b.Heal(uuids...)
	}
}
