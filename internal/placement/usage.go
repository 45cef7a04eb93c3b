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
	offers amounts
	free   amounts  // below zero if it is overcommitted
	gpus   []device // by index, then UUID

	ownerRefusals map[*muster.TaskSpec]bool // cache of ownerRefuses
}

// amounts has what a worker has, or a task needs, of each resource that is counted, by its filter: numbers of tasks and slots,
// thousandths of cores, and bytes.
type amounts [Disk + 1]int64

// counted lists the filters of amounts.
var counted = []Filter{MaxTasks, Slots, CPUs, Memory, Disk}

// requested reports whether f is about an amount that a task requests; a task without cpus gets a slot.
func (f Filter) requested() bool { return f != MaxTasks && f != Slots && slices.Contains(counted, f) }

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
	offers := amounts{MaxTasks: int64(r.MaxTasks), Slots: int64(r.Slots), CPUs: Milli(r.CPUs), Memory: int64(r.Memory), Disk: int64(r.Disk)}
	if r.MaxTasks < 1 {
		offers[MaxTasks] = math.MaxInt64
	}
	b := &WorkerUsage{Worker: w, lacks: featuresOf(w.UnsupportedFeatures), offers: offers, free: offers, gpus: make([]device, len(r.GPUs))}
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
	taken := amounts{MaxTasks: 1, Slots: int64(g.Slots), CPUs: Milli(g.CPUs), Memory: int64(g.Memory), Disk: int64(g.Disk)}
	for _, f := range counted {
		b.free[f] -= int64(sign) * taken[f]
	}
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

// available returns what is free of an amount, or all if empty is set, never below zero.
func (b *WorkerUsage) available(f Filter, empty bool) int64 {
	if empty {
		return b.offers[f]
	}
	return max(b.free[f], 0)
}

// Free returns what is not reserved, never below zero, and the GPUs that are unused.
// It leaves out MaxTasks.
func (b *WorkerUsage) Free() muster.Resources {
	free := func(f Filter) int64 { return b.available(f, false) }
	r := muster.Resources{CPUs: float64(free(CPUs)) / 1000, Memory: muster.Size(free(Memory)), Disk: muster.Size(free(Disk)), Slots: int(free(Slots))}
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
	taken := func(f Filter) int64 { return b.offers[f] - b.free[f] }
	allocated = muster.Grant{CPUs: float64(taken(CPUs)) / 1000, Memory: muster.Size(taken(Memory)), Disk: muster.Size(taken(Disk)), Slots: int(taken(Slots))}
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
	for _, free := range b.free {
		if free < 0 {
			return true
		}
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
	return b.free == o.free && slices.Equal(b.gpus, o.gpus)
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
