package bridge

import (
	"context"
	"slices"

	"github.com/muster-dev/muster"
)

// Capacity sums up the workers that serve a bridge.
type Capacity struct {
	Workers   []muster.Worker // active ones
	Resources muster.Resources
	Free      muster.Resources // not used by tasks
	Kinds     []string         // that at least one worker runs
	Running   int              // tasks
	Load      *muster.Load     // CPU is a mean weighted by cores, Memory a sum; nil if no worker reports it
}

// Capacity returns the capacity of the fleet, or of Config.Worker.
func (b *Bridge) Capacity(ctx context.Context) (Capacity, error) {
	var all []muster.Worker
	var err error
	if b.cfg.Worker == "" {
		all, err = b.cfg.Client.Workers(ctx)
	} else {
		all = make([]muster.Worker, 1)
		all[0], err = b.cfg.Client.Worker(ctx, b.cfg.Worker)
	}
	if err != nil {
		return Capacity{}, err
	}
	return SumCapacity(all), nil
}

// SumCapacity returns the capacity of the active workers.
func SumCapacity(all []muster.Worker) Capacity {
	var c Capacity
	cores, load := 0.0, muster.Load{}
	for i := range all {
		w := &all[i]
		if w.State != muster.WorkerActive {
			continue
		}
		c.Workers = append(c.Workers, *w)
		addResources(&c.Resources, &w.Resources)
		if w.Free != nil && w.Constrained == "" {
			addResources(&c.Free, w.Free)
		}
		c.Running += w.Running
		for _, k := range w.Kinds {
			if !slices.Contains(c.Kinds, k) {
				c.Kinds = append(c.Kinds, k)
			}
		}
		if w.Load != nil {
			cores += w.Resources.CPUs
			load.CPU += w.Load.CPU * w.Resources.CPUs
			load.Memory += w.Load.Memory
			load.GPUs = append(load.GPUs, w.Load.GPUs...)
		}
	}
	if cores > 0 {
		load.CPU /= cores
		c.Load = &load
	}
	slices.Sort(c.Kinds)
	return c
}

func addResources(sum, r *muster.Resources) {
	sum.CPUs += r.CPUs
	sum.Memory += r.Memory
	sum.Disk += r.Disk
	sum.Slots += r.Slots
	sum.GPUs = append(sum.GPUs, r.GPUs...)
}
