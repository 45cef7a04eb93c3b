package agent

import (
	"fmt"
	"math"
	"slices"

	"github.com/muster-dev/muster"
)

// capacity counts the resources of running attempts. The server decides what fits; the worker checks it, so that a mistake there does not
// overload the machine.
type capacity struct {
	offer     muster.Resources
	tasks     int
	slots     int
	milliCPUs int64 // thousandths of a core
	memory    muster.Size
	gpus      map[string]gpuUse // by UUID
}

type gpuUse struct {
	whole  bool
	shared muster.Size
}

func newCapacity(offer muster.Resources) capacity {
	return capacity{offer: offer, gpus: map[string]gpuUse{}}
}

func milliCores(cpus float64) int64 { return int64(math.Round(cpus * 1000)) }

// reserve reserves g, or returns why it does not fit. A grant of neither cores nor slots takes one slot, so that the number of tasks is
// bounded.
func (c *capacity) reserve(g *muster.Grant) (why string) {
	if g.Slots <= 0 && milliCores(g.CPUs) <= 0 {
		g.Slots = 1
	}
	switch {
	case c.offer.MaxTasks > 0 && c.tasks >= c.offer.MaxTasks:
		return fmt.Sprintf("this worker runs at most %d tasks at once, and runs %d", c.offer.MaxTasks, c.tasks)
	case g.Slots > 0 && c.slots+g.Slots > c.offer.Slots:
		return fmt.Sprintf("no free slot: %d of %d are in use", c.slots, c.offer.Slots)
	case g.CPUs > 0 && c.milliCPUs+milliCores(g.CPUs) > milliCores(c.offer.CPUs):
		return fmt.Sprintf("not enough free cpus: %g of %g are in use, %g requested", float64(c.milliCPUs)/1000, c.offer.CPUs, g.CPUs)
	case g.Memory > 0 && c.memory+g.Memory > c.offer.Memory:
		return fmt.Sprintf("not enough free memory: %s of %s are in use, %s requested", c.memory, c.offer.Memory, g.Memory)
	}
	for _, id := range g.GPUs {
		if why := c.checkGPU(id, g.GPUMemory); why != "" {
			return why
		}
	}
	c.forceReserve(g)
	return ""
}

// forceReserve reserves g without a check: it is in use already.
func (c *capacity) forceReserve(g *muster.Grant) {
	c.add(g, 1)
	for _, id := range g.GPUs {
		u := c.gpus[id]
		u.whole = g.GPUMemory == 0
		u.shared += g.GPUMemory
		c.gpus[id] = u
	}
}

func (c *capacity) checkGPU(id string, share muster.Size) string {
	i := slices.IndexFunc(c.offer.GPUs, func(d muster.GPU) bool { return d.UUID == id })
	if i < 0 {
		return fmt.Sprintf("this worker has no GPU %s", id)
	}
	if why := c.offer.GPUs[i].Quarantined; why != "" {
		return fmt.Sprintf("GPU %s is quarantined: %s", id, why)
	}
	u := c.gpus[id]
	if u.whole || share == 0 && u.shared > 0 || u.shared+share > c.offer.GPUs[i].Memory {
		return fmt.Sprintf("GPU %s is in use", id)
	}
	return ""
}

// release frees g.
func (c *capacity) release(g *muster.Grant) {
	c.add(g, -1)
	for _, id := range g.GPUs {
		u := c.gpus[id]
		u.whole = false
		u.shared -= g.GPUMemory
		if u.shared <= 0 {
			delete(c.gpus, id)
			continue
		}
		c.gpus[id] = u
	}
}

func (c *capacity) add(g *muster.Grant, sign int) {
	c.tasks += sign
	c.slots += sign * g.Slots
	c.milliCPUs += int64(sign) * milliCores(g.CPUs)
	c.memory += muster.Size(sign) * g.Memory
}
