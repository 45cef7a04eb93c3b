package placement

import (
	"fmt"
	"slices"
	"strings"

	"github.com/muster-dev/muster"
)

// Relax returns n with the smallest change that makes it pass filter f on this worker,
// now or, with empty set, as if it were empty; and a text that says what to do. The
// caller checks whether the changed need fits. It returns false where no change helps.
func (b *WorkerUsage) Relax(n *Need, f Filter, empty bool) (*Need, string, bool) {
	c := *n
	c.Where.Tags = slices.Clone(n.Where.Tags)
	name := b.Worker.Name
	r := &c.Request
	free := b.available(empty)
	switch f {
	case Features:
		c.features &^= b.lacks
		return &c, fmt.Sprintf("do without %s, which worker %s does not support", strings.Join((b.lacks&n.features).names(), ", "), name), true
	case Project:
		c.project = b.Worker.Projects[0]
		return &c, fmt.Sprintf("submit it to project %s, whose tasks worker %s takes", c.project, name), true
	case Tags:
		tag := firstMissing(n.Where.Tags, b.Worker.Tags)
		c.Where.Tags = slices.DeleteFunc(c.Where.Tags, func(t string) bool { return t == tag })
		return &c, fmt.Sprintf("do without the tag %s, or give it to worker %s", tag, name), true
	case ExcludedTags:
		tag := firstCommon(n.Where.ExcludeTags, b.Worker.Tags)
		c.Where.ExcludeTags = slices.DeleteFunc(slices.Clone(n.Where.ExcludeTags), func(t string) bool { return t == tag })
		return &c, fmt.Sprintf("do not exclude the tag %s, which worker %s has", tag, name), true
	case Workers:
		c.Where.Workers = nil
		return &c, fmt.Sprintf("allow worker %s, too", name), true
	case Price:
		c.Where.MaxPrice = b.Worker.Price
		return &c, fmt.Sprintf("allow a price of %g per hour instead of %g (worker %s)", b.Worker.Price, n.Where.MaxPrice, name), true
	case Vendor:
		r.GPUs.Vendor = ""
		return &c, fmt.Sprintf("ask for no GPU vendor: worker %s has %s", name, b.inventory()), true
	case Model:
		r.GPUs.Model = ""
		return &c, fmt.Sprintf("ask for no GPU model: worker %s has %s", name, b.inventory()), true
	case CPUs:
		c.mcpu, r.CPUs = free.mcpu, float64(free.mcpu)/1000
		return &c, fmt.Sprintf("ask for %s cpus instead of %s (worker %s)", formatCores(free.mcpu), formatCores(n.mcpu), name), free.mcpu > 0
	case Memory:
		r.Memory = free.memory
		return &c, fmt.Sprintf("ask for %s memory instead of %s (worker %s)", free.memory, n.Request.Memory, name), free.memory > 0
	case Disk:
		r.Disk = free.disk
		return &c, fmt.Sprintf("ask for %s disk instead of %s (worker %s)", free.disk, n.Request.Disk, name), free.disk > 0
	case GPUs:
		r.GPUs = b.reduceGPUs(&c, empty)
		return &c, fmt.Sprintf("ask for %s instead of %s (worker %s)", FormatGPURequest(r.GPUs), FormatGPURequest(n.Request.GPUs), name), r.GPUs.Count > 0
	default:
		return nil, "", false
	}
}

// shortfall returns by how much the request exceeds filter f, in the unit of f, and 0 where
// f is not about an amount.
func (b *WorkerUsage) shortfall(n *Need, f Filter, empty bool) float64 {
	free := b.available(empty)
	switch f {
	case Price:
		return b.Worker.Price - n.Where.MaxPrice
	case CPUs:
		return float64(n.mcpu - free.mcpu)
	case Memory:
		return float64(n.Request.Memory - free.memory)
	case Disk:
		return float64(n.Request.Disk - free.disk)
	default:
		return 0
	}
}

// available returns what is free, or all if empty is set, never below zero.
func (b *WorkerUsage) available(empty bool) WorkerUsage {
	if empty {
		r := &b.Worker.Resources
		return WorkerUsage{mcpu: Milli(r.CPUs), memory: r.Memory, disk: r.Disk, slots: r.Slots}
	}
	return WorkerUsage{mcpu: max(b.mcpu, 0), memory: max(b.memory, 0), disk: max(b.disk, 0), slots: max(b.slots, 0)}
}

// reduceGPUs returns the closest GPU request that the worker can meet: the same memory on
// fewer devices, else as many devices with less memory.
func (b *WorkerUsage) reduceGPUs(n *Need, empty bool) muster.GPURequest {
	c := *n
	for c.Request.GPUs.Count--; c.Request.GPUs.Count > 0; c.Request.GPUs.Count-- {
		if b.hasDevices(&c, empty) {
			return c.Request.GPUs
		}
	}
	c.Request.GPUs.Count = n.Request.GPUs.Count
	var sizes []muster.Size
	for i := range b.gpus {
		d := &b.gpus[i]
		size := d.gpu.Memory
		if n.sharesGPU() && !empty {
			size = d.free()
		}
		if size > 0 && size < n.Request.GPUs.Memory {
			sizes = append(sizes, size)
		}
	}
	slices.Sort(sizes)
	for _, size := range slices.Backward(sizes) {
		c.Request.GPUs.Memory = size
		if b.hasDevices(&c, empty) {
			return c.Request.GPUs
		}
	}
	c.Request.GPUs.Count = 0
	return c.Request.GPUs
}

// Shortage describes how much more must be free for n to pass the capacity filter f, such
// as "2 cpus". It returns "" for other filters.
func (b *WorkerUsage) Shortage(n *Need, f Filter) string {
	r := &n.Request
	switch f {
	case MaxTasks:
		return "room for one more task"
	case Slots:
		return "a slot"
	case CPUs:
		return formatCores(n.mcpu-b.mcpu) + " cpus"
	case Memory:
		return (r.Memory - b.memory).String() + " memory"
	case Disk:
		return (r.Disk - b.disk).String() + " disk"
	case GPUs:
		return FormatGPURequest(muster.GPURequest{Count: max(r.GPUs.Count-b.usableNow(n), 1), Memory: r.GPUs.Memory})
	default:
		return ""
	}
}
