package placement

import (
	"slices"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/policy"
)

// Filter is a reason why a task cannot run on a worker, or Fits. Filters are checked in
// ascending order: a greater one means that the worker is closer to fitting.
type Filter uint8

// The filters in order.
const (
	Fits Filter = iota
	State
	Kind
	Engine
	Features
	Project
	Tags
	ExcludedTags
	Workers
	Price
	Owner
	Heartbeat
	Vendor
	Model
	MaxTasks
	Slots
	CPUs
	Memory
	Disk
	GPUs
)

var filterNames = [...]string{
	Fits: "", State: "state", Kind: "kind", Engine: "engine", Features: "features", Project: "project", Tags: "tags", ExcludedTags: "not", Workers: "workers",
	Price: "price", Owner: "owner", Heartbeat: "heartbeat", Vendor: "gpu vendor", Model: "gpu model", MaxTasks: "max tasks", Slots: "slots", CPUs: "cpus", Memory: "memory", Disk: "disk", GPUs: "gpus",
}

// String returns the filter's name, and "" for Fits.
func (f Filter) String() string { return filterNames[f] }

// Fits returns the first filter that n fails on the worker now.
func (b *WorkerUsage) Fits(n *Need) Filter {
	if b.ClosedReason != "" {
		return State
	}
	if f := b.fitsStatic(n); f != Fits {
		return f
	}
	return b.fitsCapacity(n, false)
}

// FitsEmpty returns the first filter that n would fail on the worker if it were open
// and empty. Fits means that n can run there later.
func (b *WorkerUsage) FitsEmpty(n *Need) Filter {
	if f := b.fitsStatic(n); f != Fits {
		return f
	}
	return b.fitsCapacity(n, true)
}

// fitsStatic checks what does not depend on load.
func (b *WorkerUsage) fitsStatic(n *Need) Filter {
	w := b.Worker
	if n.Kind != muster.KindContainer && !slices.Contains(w.Kinds, n.Kind) {
		return Kind
	}
	if n.Engine && !slices.Contains(w.Kinds, muster.KindContainer) {
		return Engine
	}
	if b.lacks&n.features != 0 {
		return Features
	}
	if len(w.Projects) > 0 && !slices.Contains(w.Projects, n.project) {
		return Project
	}
	for _, t := range n.Where.Tags {
		if !slices.Contains(w.Tags, t) {
			return Tags
		}
	}
	for _, t := range n.Where.ExcludeTags {
		if slices.Contains(w.Tags, t) {
			return ExcludedTags
		}
	}
	if list := n.Where.Workers; len(list) > 0 && !slices.Contains(list, w.Name) && !slices.Contains(list, string(w.ID)) {
		return Workers
	}
	if n.Where.MaxPrice > 0 && w.Price > n.Where.MaxPrice {
		return Price
	}
	if n.ownerPolicy != nil && b.ownerRefuses(n.ownerPolicy) {
		return Owner
	}
	if n.durations.grace > 0 && n.durations.grace < minGrace(w) {
		return Heartbeat
	}
	if n.Request.GPUs.Count == 0 || len(b.gpus) == 0 {
		return Fits
	}
	f := Vendor
	for i := range b.gpus {
		switch b.gpus[i].matches(n) {
		case Fits:
			return Fits
		case Model:
			f = Model
		default:
		}
	}
	return f
}

// maxRefused is how many decisions of an owner's policy a WorkerUsage caches.
const maxRefused = 256

// ownerRefuses reports whether the worker's owner does not allow the spec. The result is cached,
// because it is needed whenever the worker's load changes.
func (b *WorkerUsage) ownerRefuses(spec *muster.TaskSpec) bool {
	switch {
	case spec == plain:
		return b.Worker.Allow != nil && b.Worker.Allow.SignedBy != nil
	case b.Worker.Allow == nil:
		return policy.Check(nil, spec) != ""
	}
	refuses, known := b.ownerRefusals[spec]
	if !known {
		if b.ownerRefusals == nil || len(b.ownerRefusals) == maxRefused {
			b.ownerRefusals = map[*muster.TaskSpec]bool{}
		}
		refuses = policy.Check(b.Worker.Allow, spec) != ""
		b.ownerRefusals[spec] = refuses
	}
	return refuses
}

// matches checks vendor and model of one device.
func (d *device) matches(n *Need) Filter {
	if v := n.Request.GPUs.Vendor; v != "" && v != d.gpu.Vendor {
		return Vendor
	}
	if m := n.Request.GPUs.Model; m != "" && !strings.Contains(d.gpu.Name, m) {
		return Model
	}
	return Fits
}

// fitsCapacity checks what depends on load, as if the worker were empty if empty is set.
func (b *WorkerUsage) fitsCapacity(n *Need, empty bool) Filter {
	for _, f := range counted {
		if need := n.amounts[f]; need > 0 && b.available(f, empty) < need {
			return f
		}
	}
	if n.Request.GPUs.Count > 0 && !b.hasDevices(n, empty) {
		return GPUs
	}
	return Fits
}

// hasDevices reports whether enough devices of one vendor are usable.
func (b *WorkerUsage) hasDevices(n *Need, empty bool) bool {
	for i := range b.gpus {
		have := 0
		for j := i; j < len(b.gpus); j++ {
			if b.gpus[j].gpu.Vendor != b.gpus[i].gpu.Vendor {
				continue
			}
			if _, ok := b.gpus[j].usable(n, empty); ok {
				have++
			}
		}
		if have >= n.Request.GPUs.Count {
			return true
		}
	}
	return false
}

// usable reports whether the device can be granted to n, and how much of its memory
// would be idle then.
func (d *device) usable(n *Need, empty bool) (waste muster.Size, ok bool) {
	if d.gpu.Quarantined != "" || d.matches(n) != Fits {
		return 0, false
	}
	free := d.gpu.Memory
	switch {
	case empty:
	case n.sharesGPU():
		free = d.free()
	case d.exclusive > 0 || d.shared > 0:
		return 0, false
	}
	return free - n.Request.GPUs.Memory, free >= n.Request.GPUs.Memory
}
