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
		return "lacks the tag " + firstMissing(n.Where.Tags, w.Tags)
	case ExcludedTags:
		return "has the excluded tag " + firstCommon(n.Where.ExcludeTags, w.Tags)
	case Workers:
		return "is not among the workers asked for: " + strings.Join(n.Where.Workers, ", ")
	case Price:
		return fmt.Sprintf("costs %g per hour, at most %g is allowed", w.Price, n.Where.MaxPrice)
	case Owner:
		return policy.Check(w.Allow, n.ownerPolicy)
	case Vendor:
		return fmt.Sprintf("needs a GPU of vendor %s, has %s", r.GPUs.Vendor, b.inventory())
	case Model:
		return fmt.Sprintf("needs a GPU of model %q, has %s", r.GPUs.Model, b.inventory())
	case MaxTasks:
		return fmt.Sprintf("has %d tasks, and runs at most %d at once", b.tasks, w.Resources.MaxTasks)
	case Slots:
		return amount("slot", "1", strconv.Itoa(max(b.slots, 0)), strconv.Itoa(w.Resources.Slots), w.Resources.Slots < 1)
	case CPUs:
		return amount("cpus", formatCores(n.mcpu), formatCores(b.mcpu), formatCores(Milli(w.Resources.CPUs)), Milli(w.Resources.CPUs) < n.mcpu)
	case Memory:
		return amount("memory", r.Memory.String(), max(b.memory, 0).String(), w.Resources.Memory.String(), w.Resources.Memory < r.Memory)
	case Disk:
		return amount("disk", r.Disk.String(), max(b.disk, 0).String(), w.Resources.Disk.String(), w.Resources.Disk < r.Disk)
	case GPUs:
		request, out := FormatGPURequest(r.GPUs), b.quarantined(n)
		if !b.hasDevices(n, true) {
			return fmt.Sprintf("needs %s, has %s%s", request, b.inventory(), out)
		}
		return fmt.Sprintf("needs %s; %d of %d free and suitable%s", request, b.usableNow(n), len(b.gpus), out)
	default:
		return f.String()
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

// amount describes a shortage, which is permanent if forever is set.
func amount(unit, need, free, all string, forever bool) string {
	if forever {
		return fmt.Sprintf("needs %s %s, has %s", need, unit, all)
	}
	return fmt.Sprintf("needs %s %s, %s of %s free", need, unit, free, all)
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

func formatCores(m int64) string { return strconv.FormatFloat(float64(max(m, 0))/1000, 'f', -1, 64) }

func firstMissing(want, have []string) string {
	for _, t := range want {
		if !slices.Contains(have, t) {
			return t
		}
	}
	return ""
}

func firstCommon(want, have []string) string {
	for _, t := range want {
		if slices.Contains(have, t) {
			return t
		}
	}
	return ""
}
