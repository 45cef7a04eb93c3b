package placement

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-dev/muster"
)

// WorkerUsage has one worker's description, what it offers and what is reserved of that.
// When a worker reconnects with less, it may be overcommitted until tasks end. A
// WorkerUsage is not safe for use by several goroutines.
type WorkerUsage struct {
	Worker       *muster.Worker // ID, Name, Tags, Labels, Kinds, Price, UnsupportedFeatures, Projects, Allow and Resources are read
	ClosedReason string         // why the worker takes no tasks now; "" if it does
	WillReopen   bool           // it will take tasks again by itself

	lacks  features // of Worker
	tasks  int      // on the worker
	mcpu   int64
	memory muster.Size
	disk   muster.Size
	slots  int
	gpus   []device // by index, then UUID

	ownerRefusals map[*muster.TaskSpec]bool // cache of ownerRefuses
}

// device is one GPU and what is reserved of it.
type device struct {
	gpu       muster.GPU // vendor and name in lower case
	tasks     int        // grants of the whole device or a part
	exclusive int        // grants of the whole device: 0 or 1
	shared    muster.Size
}

// idle reports whether the device is unused and not quarantined.
func (d *device) idle() bool { return d.exclusive == 0 && d.shared == 0 && d.gpu.Quarantined == "" }

// free returns the bytes that sharing tasks may still get.
func (d *device) free() muster.Size {
	if d.exclusive > 0 {
		return 0
	}
	return d.gpu.Memory - d.shared
}

// NewWorkerUsage returns the usage of a worker without tasks.
func NewWorkerUsage(w *muster.Worker) *WorkerUsage {
	r := w.Resources
	b := &WorkerUsage{
		Worker: w, lacks: featuresOf(w.UnsupportedFeatures), mcpu: Milli(r.CPUs), memory: r.Memory, disk: r.Disk, slots: r.Slots, gpus: make([]device, len(r.GPUs)),
	}
	for i, g := range r.GPUs {
		g.Vendor, g.Name = strings.ToLower(g.Vendor), strings.ToLower(g.Name)
		b.gpus[i].gpu = g
	}
	slices.SortStableFunc(b.gpus, func(x, y device) int {
		if x.gpu.Index != y.gpu.Index {
			return x.gpu.Index - y.gpu.Index
		}
		return strings.Compare(x.gpu.UUID, y.gpu.UUID)
	})
	return b
}

// Reserve adds a grant. It ignores devices that the worker does not have.
func (b *WorkerUsage) Reserve(g *muster.Grant) { b.apply(g, 1) }

// Release removes a reserved grant.
func (b *WorkerUsage) Release(g *muster.Grant) { b.apply(g, -1) }

func (b *WorkerUsage) apply(g *muster.Grant, sign int) {
	b.tasks += sign
	b.mcpu -= int64(sign) * Milli(g.CPUs)
	b.memory -= muster.Size(sign) * g.Memory
	b.disk -= muster.Size(sign) * g.Disk
	b.slots -= sign * g.Slots
	for _, uuid := range g.GPUs {
		for i := range b.gpus {
			if d := &b.gpus[i]; d.gpu.UUID == uuid {
				d.tasks += sign
				if g.GPUMemory > 0 {
					d.shared += muster.Size(sign) * g.GPUMemory
				} else {
					d.exclusive += sign
				}
			}
		}
	}
}

// Free returns what is not reserved, never below zero, and the GPUs that are unused.
// It leaves out MaxTasks.
func (b *WorkerUsage) Free() muster.Resources {
	r := muster.Resources{
		CPUs: float64(max(b.mcpu, 0)) / 1000, Memory: max(b.memory, 0), Disk: max(b.disk, 0), Slots: max(b.slots, 0),
	}
	for i := range b.gpus {
		if d := &b.gpus[i]; d.idle() {
			for _, g := range b.Worker.Resources.GPUs {
				if g.UUID == d.gpu.UUID {
					r.GPUs = append(r.GPUs, g)
				}
			}
		}
	}
	return r
}

// Allocated returns the sum of the grants, the number of devices in use, and the number of grants on each device of the
// worker's Resources.
func (b *WorkerUsage) Allocated() (allocated muster.Grant, devices int, tasks []int) {
	r := &b.Worker.Resources
	allocated = muster.Grant{CPUs: float64(Milli(r.CPUs)-b.mcpu) / 1000, Memory: r.Memory - b.memory, Disk: r.Disk - b.disk, Slots: r.Slots - b.slots}
	if len(r.GPUs) > 0 {
		tasks = make([]int, len(r.GPUs))
	}
	for i := range r.GPUs {
		d := b.deviceAt(i)
		if d == nil {
			continue
		}
		tasks[i] = d.tasks
		allocated.GPUMemory += d.shared
		if d.exclusive > 0 {
			allocated.GPUMemory += d.gpu.Memory
		}
		if d.tasks > 0 {
			devices++
		}
	}
	return allocated, devices, tasks
}

// deviceAt returns the device with an index in the worker's Resources.
func (b *WorkerUsage) deviceAt(i int) *device {
	uuid := b.Worker.Resources.GPUs[i].UUID
	if i < len(b.gpus) && b.gpus[i].gpu.UUID == uuid { // usually the order is the same
		return &b.gpus[i]
	}
	for j := range b.gpus {
		if b.gpus[j].gpu.UUID == uuid {
			return &b.gpus[j]
		}
	}
	return nil
}

// ExpectedRelease is when a grant is expected to be released.
type ExpectedRelease struct {
	In    muster.Duration
	Grant *muster.Grant
}

// FreeIn returns in how long so many tasks with need n will fit; they must fit after all
// releases. It sorts releases.
func (b *WorkerUsage) FreeIn(n *Need, tasks int, releases []ExpectedRelease) muster.Duration {
	slices.SortFunc(releases, func(x, y ExpectedRelease) int { return cmp.Compare(x.In, y.In) })
	c := *b
	c.gpus = slices.Clone(b.gpus)
	var in muster.Duration
	for _, e := range releases {
		if c.fitsTasks(n, tasks) {
			break
		}
		c.Release(e.Grant)
		in = e.In
	}
	return in
}

// fitsTasks reports whether so many tasks with need n fit.
func (b *WorkerUsage) fitsTasks(n *Need, tasks int) bool {
	return b.Fits(n) == Fits && (tasks == 1 || b.countMembers(n, tasks).Members == tasks)
}

// Overcommitted reports whether more is reserved than the worker offers.
func (b *WorkerUsage) Overcommitted() bool {
	if limit := b.Worker.Resources.MaxTasks; limit > 0 && b.tasks > limit {
		return true
	}
	if b.mcpu < 0 || b.memory < 0 || b.disk < 0 || b.slots < 0 {
		return true
	}
	for i := range b.gpus {
		d := &b.gpus[i]
		if d.exclusive > 1 || d.exclusive > 0 && d.shared > 0 || d.shared > d.gpu.Memory {
			return true
		}
	}
	return false
}

// Equal reports whether both have the same reservations.
func (b *WorkerUsage) Equal(o *WorkerUsage) bool {
	return b.tasks == o.tasks && b.mcpu == o.mcpu && b.memory == o.memory && b.disk == o.disk && b.slots == o.slots && slices.Equal(b.gpus, o.gpus)
}

// Validate returns an Invalid error for a worker whose description is not usable.
func Validate(w *muster.Worker) error {
	r := &w.Resources
	switch {
	case w.ID == "":
		return muster.Errorf(muster.Invalid, "a worker without an id cannot join")
	case math.IsNaN(r.CPUs) || r.CPUs < 0 || r.CPUs > 1<<20 || r.Memory < 0 || r.Disk < 0 || r.Slots < 0 || r.MaxTasks < 0:
		return muster.Errorf(muster.Invalid, "worker %s offers negative or impossibly large resources", w.ID)
	case math.IsNaN(w.Price) || w.Price < 0:
		return muster.Errorf(muster.Invalid, "worker %s has the price %g: it must be 0 or more", w.ID, w.Price)
	}
	for i, g := range r.GPUs {
		if g.UUID == "" || g.Memory < 0 || slices.ContainsFunc(r.GPUs[:i], func(o muster.GPU) bool { return o.UUID == g.UUID }) {
			return muster.Errorf(muster.Invalid, "worker %s: GPU %d has a duplicate or missing UUID, or negative memory", w.ID, g.Index)
		}
	}
	return nil
}

// Quarantined returns the UUIDs of a worker's quarantined devices with these UUIDs or
// indexes, or of all if names is empty. An unknown device is a NotFound error; a device
// that is not quarantined, or none at all, is a Conflict.
func Quarantined(w *muster.Worker, names []string) ([]string, error) {
	gpus := w.Resources.GPUs
	var uuids []string
	if len(names) == 0 {
		for i := range gpus {
			if gpus[i].Quarantined != "" {
				uuids = append(uuids, gpus[i].UUID)
			}
		}
		if uuids == nil {
			return nil, muster.Errorf(muster.Conflict, "worker %s has no quarantined GPU", w.Name)
		}
		return uuids, nil
	}
	for _, name := range names {
		i := slices.IndexFunc(gpus, func(g muster.GPU) bool { return g.UUID == name })
		if i < 0 {
			i = slices.IndexFunc(gpus, func(g muster.GPU) bool { return strconv.Itoa(g.Index) == name })
		}
		switch {
		case i < 0:
			return nil, muster.Errorf(muster.NotFound, "worker %s has no GPU %q: name it by its UUID or its index", w.Name, name)
		case gpus[i].Quarantined == "":
			return nil, muster.Errorf(muster.Conflict, "GPU %s of worker %s is not quarantined", name, w.Name)
		case !slices.Contains(uuids, gpus[i].UUID):
			uuids = append(uuids, gpus[i].UUID)
		}
	}
	return uuids, nil
}
