package placement

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/policy"
)

// Explain describes the failure of filter f, as returned by Fits for n, in a few words.
// It returns "" for Fits.
func (b *WorkerUsage) Explain(n *Need, f Filter) string {
	w, r := b.Worker, &n.Request
	switch f {
	case Fits:
		return ""
	case State:
		return b.ClosedReason
	case Kind:
		const maxListed = 6
		if len(w.Kinds) > maxListed {
			return fmt.Sprintf("does not run kind %q", n.Kind)
		}
		return fmt.Sprintf("does not run kind %q, only %s", n.Kind, strings.Join(w.Kinds, ", "))
	case Engine:
		return "has no container engine that is ready"
	case Features:
		return "does not support: " + strings.Join((b.lacks&n.features).names(), ", ") + b.dialectSuffix()
	case Project:
		return "takes tasks of project " + strings.Join(w.Projects, ", ") + " only"
	case Tags:
		return "lacks the tag " + firstTag(n.Where.Tags, w.Tags, false)
	case ExcludedTags:
		return "has the excluded tag " + firstTag(n.Where.ExcludeTags, w.Tags, true)
	case Workers:
		return "is not among the workers asked for: " + strings.Join(n.Where.Workers, ", ")
	case Price:
		return fmt.Sprintf("costs %g per hour, at most %g is allowed", w.Price, n.Where.MaxPrice)
	case Owner:
		return policy.Check(w.Allow, n.ownerPolicy)
	case Heartbeat:
		return fmt.Sprintf("sends heartbeats every %s, and tasks with a disconnect.grace of %s need two in that time", w.Heartbeat, n.durations.grace)
	case Vendor:
		return fmt.Sprintf("needs a GPU of vendor %s, has %s", r.GPUs.Vendor, b.inventory())
	case Model:
		return fmt.Sprintf("needs a GPU of model %q, has %s", r.GPUs.Model, b.inventory())
	case MaxTasks:
		return fmt.Sprintf("has %d tasks, and runs at most %d at once", b.offers[f]-b.free[f], b.offers[f])
	case GPUs:
		request, out := FormatGPURequest(r.GPUs), b.quarantined(n)
		if !b.hasDevices(n, true) {
			return fmt.Sprintf("needs %s, has %s%s", request, b.inventory(), out)
		}
		return fmt.Sprintf("needs %s; %d of %d free and suitable%s", request, b.usableNow(n), len(b.gpus), out)
	default:
		if !slices.Contains(counted, f) {
			return f.String()
		}
		if b.offers[f] < n.amounts[f] {
			return fmt.Sprintf("needs %s, has %s", f.format(n.amounts[f], true), f.format(b.offers[f], false))
		}
		return fmt.Sprintf("needs %s, %s of %s free", f.format(n.amounts[f], true), f.format(b.available(f, false), false), f.format(b.offers[f], false))
	}
}

// LabelDialect is the label that names the system of a worker of another system.
const LabelDialect = "dialect"

// dialectSuffix names the system of a worker of another system.
func (b *WorkerUsage) dialectSuffix() string {
	if name := b.Worker.Labels[LabelDialect]; name != "" {
		return " (" + name + " worker)"
	}
	return ""
}

// format formats an amount of the filter, with or without the name of the resource.
func (f Filter) format(n int64, named bool) string {
	text, name := muster.Size(n).String(), f.String()
	switch f {
	case Slots:
		text, name = strconv.FormatInt(n, 10), "slot"
	case CPUs:
		text = strconv.FormatFloat(float64(n)/1000, 'f', -1, 64)
	default:
	}
	if named {
		text += " " + name
	}
	return text
}

// FormatGPURequest returns a text such as "2 GPUs with 10GiB each".
func FormatGPURequest(r muster.GPURequest) string {
	s := strconv.Itoa(r.Count) + " GPU"
	if r.Count != 1 {
		s += "s"
	}
	if r.Memory > 0 {
		s += " with " + r.Memory.String()
		if r.Count != 1 {
			s += " each"
		}
	}
	return s
}

// inventory lists the worker's devices.
func (b *WorkerUsage) inventory() string {
	if len(b.gpus) == 0 {
		return "none"
	}
	var names []string
	for i := range b.Worker.Resources.GPUs {
		g := &b.Worker.Resources.GPUs[i]
		name := fmt.Sprintf("%s (%s, %s)", g.Name, g.Vendor, g.Memory)
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// quarantined lists the devices that are excluded for n only by a quarantine.
func (b *WorkerUsage) quarantined(n *Need) string {
	var s strings.Builder
	for i := range b.gpus {
		if d := &b.gpus[i]; d.gpu.Quarantined != "" && d.matches(n) == Fits {
			fmt.Fprintf(&s, "; GPU %d (%s) is quarantined: %s", d.gpu.Index, d.gpu.UUID, d.gpu.Quarantined)
		}
	}
	return s.String()
}

// healable reports whether only quarantines exclude the worker for n.
func (b *WorkerUsage) healable(n *Need) bool {
	c := WorkerUsage{gpus: slices.Clone(b.gpus)}
	for i := range c.gpus {
		c.gpus[i].gpu.Quarantined = ""
	}
	return !b.hasDevices(n, true) && c.hasDevices(n, true)
}

func (b *WorkerUsage) usableNow(n *Need) int {
	have := 0
	for i := range b.gpus {
		if _, ok := b.gpus[i].usable(n, false); ok {
			have++
		}
	}
	return have
}

// firstTag returns the first wanted tag that is in have, or is missing there.
func firstTag(want, have []string, present bool) string {
	if i := slices.IndexFunc(want, func(t string) bool { return slices.Contains(have, t) == present }); i >= 0 {
		return want[i]
	}
	return ""
}

// Relax returns n with the smallest change that makes it pass filter f on this worker,
// now or, with empty set, as if it were empty; and a text that says what to do. The
// caller checks whether the changed need fits. It returns false where no change helps.
func (b *WorkerUsage) Relax(n *Need, f Filter, empty bool) (*Need, string, bool) {
	c := *n
	c.Where.Tags = slices.Clone(n.Where.Tags)
	name := b.Worker.Name
	r := &c.Request
	switch f {
	case Features:
		c.features &^= b.lacks
		return &c, fmt.Sprintf("do without %s, which worker %s does not support", strings.Join((b.lacks&n.features).names(), ", "), name), true
	case Project:
		c.project = b.Worker.Projects[0]
		return &c, fmt.Sprintf("submit it to project %s, whose tasks worker %s takes", c.project, name), true
	case Tags:
		tag := firstTag(n.Where.Tags, b.Worker.Tags, false)
		c.Where.Tags = slices.DeleteFunc(c.Where.Tags, func(t string) bool { return t == tag })
		return &c, fmt.Sprintf("do without the tag %s, or give it to worker %s", tag, name), true
	case ExcludedTags:
		tag := firstTag(n.Where.ExcludeTags, b.Worker.Tags, true)
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
	case GPUs:
		r.GPUs = b.reduceGPUs(&c, empty)
		return &c, fmt.Sprintf("ask for %s instead of %s (worker %s)", FormatGPURequest(r.GPUs), FormatGPURequest(n.Request.GPUs), name), r.GPUs.Count > 0
	default:
		if !f.requested() {
			return nil, "", false
		}
		c.amounts[f] = b.available(f, empty)
		advice := fmt.Sprintf("ask for %s instead of %s (worker %s)", f.format(c.amounts[f], true), f.format(n.amounts[f], false), name)
		return &c, advice, c.amounts[f] > 0
	}
}

// shortfall returns by how much the request exceeds filter f, in the unit of f, and 0 where
// f is not about an amount.
func (b *WorkerUsage) shortfall(n *Need, f Filter, empty bool) float64 {
	switch {
	case f == Price:
		return b.Worker.Price - n.Where.MaxPrice
	case f.requested():
		return float64(n.amounts[f] - b.available(f, empty))
	default:
		return 0
	}
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
	case GPUs:
		return FormatGPURequest(muster.GPURequest{Count: max(r.GPUs.Count-b.usableNow(n), 1), Memory: r.GPUs.Memory})
	default:
		if f.requested() {
			return f.format(n.amounts[f]-b.free[f], true)
		}
		return ""
	}
}
