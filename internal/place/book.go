package place

import (
	"cmp"
	"slices"
	"strings"

	"github.com/muster-dev/muster"
)

// Book is the account of one worker: what it is, what it offers and what of that
// is taken. After a worker came back smaller than it was, more may be taken than
// there is; nothing of that is given out until it is free again. A Book is not
// safe for use by several goroutines.
type Book struct {
	Worker *muster.Worker // EventID, Name, Tags, Labels, Kinds, Price, Lacks, Projects and Resources are read
	Closed string         // why the worker takes no tasks now; "" if it does
	Opens  bool           // it takes some again of its own accord

	lacks  features // of Worker
	tasks  int      // that it has
	mcpu   int64
	memory muster.Size
	disk   muster.Size
	slots  int
	gpus   []device // by index, then UUID

	owner map[*muster.TaskSpec]bool // what its owner refuses, of what was asked lately: see refused
}

// device is one GPU and what is taken of it.
type device struct {
	gpu   muster.GPU // vendor and name in lower case
	tasks int        // grants that have any of it
	whole int        // grants that have it whole: 0 or 1
	parts muster.Size
}

// idle reports whether nobody has anything of the device, and somebody might.
func (d *device) idle() bool { return d.whole == 0 && d.parts == 0 && d.gpu.Quarantined == "" }

// free returns the bytes that sharing tasks may still have.
func (d *device) free() muster.Size {
	if d.whole > 0 {
		return 0
	}
	return d.gpu.Memory - d.parts
}

// NewBook opens the account of a worker on which nothing runs.
func NewBook(w *muster.Worker) *Book {
	r := w.Resources
	b := &Book{
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

// Take enters a grant. Devices that the worker does not have (any more) are
// passed over.
func (b *Book) Take(g *muster.Grant) { b.enter(g, 1) }

// Return strikes out a grant that was taken before.
func (b *Book) Return(g *muster.Grant) { b.enter(g, -1) }

func (b *Book) enter(g *muster.Grant, sign int) {
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
					d.parts += muster.Size(sign) * g.GPUMemory
				} else {
					d.whole += sign
				}
			}
		}
	}
}

// Free returns what is not taken, never below zero; of GPUs those that are wholly
// free. Of MaxTasks it says nothing: see the worker's Running.
func (b *Book) Free() muster.Resources {
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

// Taken returns what grants have taken, of devices their number and memory, and how many grants have any of each device
// of the worker's Resources.
func (b *Book) Taken() (taken muster.Grant, devices int, tasks []int) {
	r := &b.Worker.Resources
	taken = muster.Grant{CPUs: float64(Milli(r.CPUs)-b.mcpu) / 1000, Memory: r.Memory - b.memory, Disk: r.Disk - b.disk, Slots: r.Slots - b.slots}
	if len(r.GPUs) > 0 {
		tasks = make([]int, len(r.GPUs))
	}
	for i := range r.GPUs {
		d := b.device(i)
		if d == nil {
			continue
		}
		tasks[i] = d.tasks
		taken.GPUMemory += d.parts
		if d.whole > 0 {
			taken.GPUMemory += d.gpu.Memory
		}
		if d.tasks > 0 {
			devices++
		}
	}
	return taken, devices, tasks
}

// device returns what is taken of the device at a place in the worker's Resources.
func (b *Book) device(i int) *device {
	uuid := b.Worker.Resources.GPUs[i].UUID
	if i < len(b.gpus) && b.gpus[i].gpu.UUID == uuid { // most often in the same order
		return &b.gpus[i]
	}
	for j := range b.gpus {
		if b.gpus[j].gpu.UUID == uuid {
			return &b.gpus[j]
		}
	}
	return nil
}

// End is when a grant that was taken will be returned.
type End struct {
	In    muster.Duration
	Grant *muster.Grant
}

// FreeIn returns after how long there will be room for so many tasks with need n,
// which fit if all ends are past. It sorts them.
func (b *Book) FreeIn(n *Need, tasks int, ends []End) muster.Duration {
	slices.SortFunc(ends, func(x, y End) int { return cmp.Compare(x.In, y.In) })
	c := *b
	c.gpus = slices.Clone(b.gpus)
	var in muster.Duration
	for _, e := range ends {
		if c.takes(n, tasks) {
			break
		}
		c.Return(e.Grant)
		in = e.In
	}
	return in
}

// takes reports whether there is room for so many tasks with need n.
func (b *Book) takes(n *Need, tasks int) bool {
	return b.Fits(n) == Fits && (tasks == 1 || b.count(n, tasks).Members == tasks)
}

// Over reports whether more is taken than the worker offers.
func (b *Book) Over() bool {
	if most := b.Worker.Resources.MaxTasks; most > 0 && b.tasks > most {
		return true
	}
	if b.mcpu < 0 || b.memory < 0 || b.disk < 0 || b.slots < 0 {
		return true
	}
	for i := range b.gpus {
		d := &b.gpus[i]
		if d.whole > 1 || d.whole > 0 && d.parts > 0 || d.parts > d.gpu.Memory {
			return true
		}
	}
	return false
}

// Equal reports whether both accounts have the same balance.
func (b *Book) Equal(o *Book) bool {
	return b.tasks == o.tasks && b.mcpu == o.mcpu && b.memory == o.memory && b.disk == o.disk && b.slots == o.slots && slices.Equal(b.gpus, o.gpus)
}
