// Package overview summarizes the fleet: resources, usage, and what needs attention. It is pure.
package overview

import (
	"math"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/sched"
	"github.com/muster-dev/muster/internal/store"
)

// Limits of an overview's lists.
const (
	MaxGPUs        = 20_000
	MaxRowsPerKind = 20 // of what needs attention
)

// Input is the input of Build.
type Input struct {
	Fleet        *sched.FleetSnapshot
	Workload     sched.Workload      // of all projects, or of Project
	Project      string              // the only project that the caller may see, or ""
	OldestReason string              // why Workload.Oldest waits
	Failing      []store.FailingName // names whose last FailingStreak jobs failed
	Version      string              // of the server
	Disk         Disk                // of the server's data directory
	Gateways     []wire.Gateway
	WithGPUs     bool // list the GPUs
}

// Disk is the space of a file system; zero if it is unknown.
type Disk struct{ Free, Size muster.Size }

// FailingStreak is how many jobs of a name must fail in a row to need attention.
const FailingStreak = 3

// Build returns the overview.
func Build(f *Input) wire.Overview {
	o := wire.Overview{At: f.Fleet.At, Tasks: f.Workload.Counts, Rate: wire.Rate(f.Workload.Rate), GPUs: []wire.OverviewGPU{}}
	for i := range f.Fleet.Workers {
		w := &f.Fleet.Workers[i]
		count(&o.Workers, w)
		if !w.Connected() {
			continue
		}
		if f.WithGPUs {
			o.GPUs = append(o.GPUs, gpus(w)[:min(len(w.Offers.GPUs), MaxGPUs-len(o.GPUs))]...)
		}
	}
	sums := f.Fleet.Sums()
	o.Capacity, o.Reserved, o.Used = wire.Amounts(sums.Capacity), wire.Amounts(sums.Reserved), wire.Used(sums.Used)
	o.CostPerHour, o.PricePerHour = sums.Cost, sums.Price
	if q := f.Workload.Oldest; q != nil {
		o.OldestWaiting = &wire.Oldest{Task: q.Task, Job: q.Task.Job, Name: q.Name, QueuedAt: q.QueuedAt, Summary: f.OldestReason}
	}
	o.Attention, o.AttentionTotal = attention(f)
	return o
}

func count(c *wire.WorkerCounts, w *sched.WorkerSnapshot) {
	c.Total++
	switch w.State {
	case muster.WorkerPending:
		c.Pending++
	case muster.WorkerActive:
		c.Active++
	case muster.WorkerPaused:
		c.Paused++
	case muster.WorkerDraining:
		c.Draining++
	case muster.WorkerUnreachable:
		c.Unreachable++
	case muster.WorkerGone:
		c.Gone++
	}
	if w.Constrained != "" {
		c.Constrained++
	}
}

// gpus lists the devices of a connected worker.
func gpus(w *sched.WorkerSnapshot) []wire.OverviewGPU {
	list := make([]wire.OverviewGPU, len(w.Offers.GPUs))
	for i := range w.Offers.GPUs {
		d, x := &w.Offers.GPUs[i], &list[i]
		*x = wire.OverviewGPU{
			Worker: w.ID, WorkerName: w.Name, Index: d.Index, UUID: d.UUID, Name: d.Name, Memory: d.Memory, Quarantined: d.Quarantined, Tasks: w.GPUTasks[i],
		}
		if l := w.GPULoad(i); l != nil {
			x.Utilization, x.MemoryUsed, x.Temperature, x.Power = roundReading(l.Utilization, 1000), l.Memory, roundReading(l.Temperature, 10), roundReading(l.Power, 10)
		}
	}
	return list
}

// roundReading rounds a reading to the displayed digits: with many devices, digits cost most to send and to parse.
func roundReading(v *float64, scale float64) *float64 {
	if v == nil {
		return nil
	}
	return new(math.Round(*v*scale) / scale)
}
