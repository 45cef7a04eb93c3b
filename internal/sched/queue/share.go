package queue

import (
	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/placement"
)

// Project is a project with live jobs, which shares the fleet with others.
type Project struct {
	Name  string
	Jobs  int // live jobs
	Usage ResourceVector
}

// ResourceVector has the amounts that fair sharing counts.
type ResourceVector struct {
	Slots  int64
	MCPU   int64 // thousandths of cores
	Memory int64 // bytes
	MGPU   int64 // thousandths of devices
}

// AddGrant adds sign times a grant of a worker that offers r.
func (a *ResourceVector) AddGrant(g *muster.Grant, r *muster.Resources, sign int64) {
	a.Slots += sign * int64(g.Slots)
	a.MCPU += sign * placement.Milli(g.CPUs)
	a.Memory += sign * int64(g.Memory)
	for _, uuid := range g.GPUs {
		a.MGPU += sign * deviceShare(r, uuid, g.GPUMemory)
	}
}

// AddCapacity adds sign times what a worker offers.
func (a *ResourceVector) AddCapacity(r *muster.Resources, sign int64) {
	a.Slots += sign * int64(r.Slots)
	a.MCPU += sign * placement.Milli(r.CPUs)
	a.Memory += sign * int64(r.Memory)
	a.MGPU += sign * 1000 * int64(len(r.GPUs))
}

// DominantShare returns the greatest fraction that a is of any amount of all.
func (a *ResourceVector) DominantShare(all *ResourceVector) float64 {
	return max(placement.Ratio(a.Slots, all.Slots), placement.Ratio(a.MCPU, all.MCPU), placement.Ratio(a.Memory, all.Memory), placement.Ratio(a.MGPU, all.MGPU))
}

// deviceShare returns the granted part of a device in thousandths.
func deviceShare(r *muster.Resources, uuid string, memory muster.Size) int64 {
	if memory == 0 {
		return 1000
	}
	for i := range r.GPUs {
		if d := &r.GPUs[i]; d.UUID == uuid && d.Memory > 0 {
			return int64(float64(memory) / float64(d.Memory) * 1000)
		}
	}
	return 1000
}
