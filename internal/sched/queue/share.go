package queue

import (
	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/place"
)

// Project is who shares the fleet with others.
type Project struct {
	Name  string
	Jobs  int // live ones
	Holds Amounts
}

// Amounts is what fairness counts.
type Amounts struct {
	Slots  int64
	MCPU   int64 // thousandths of cores
	Memory int64 // bytes
	MGPU   int64 // thousandths of devices
}

// Grant adds sign times what a grant takes of a worker that offers r.
func (a *Amounts) Grant(g *muster.Grant, r *muster.Resources, sign int64) {
	a.Slots += sign * int64(g.Slots)
	a.MCPU += sign * place.Milli(g.CPUs)
	a.Memory += sign * int64(g.Memory)
	for _, uuid := range g.GPUs {
		a.MGPU += sign * partOfDevice(r, uuid, g.GPUMemory)
	}
}

// Offer adds sign times all that a worker offers.
func (a *Amounts) Offer(r *muster.Resources, sign int64) {
	a.Slots += sign * int64(r.Slots)
	a.MCPU += sign * place.Milli(r.CPUs)
	a.Memory += sign * int64(r.Memory)
	a.MGPU += sign * 1000 * int64(len(r.GPUs))
}

// Share is the dominant share: the greatest part that a is of any of all's
// amounts.
func (a *Amounts) Share(all *Amounts) float64 {
	return max(part(a.Slots, all.Slots), part(a.MCPU, all.MCPU), part(a.Memory, all.Memory), part(a.MGPU, all.MGPU))
}

func part(n, of int64) float64 {
	if of <= 0 {
		return 0
	}
	return float64(n) / float64(of)
}

// partOfDevice returns how many thousandths of a device are granted.
func partOfDevice(r *muster.Resources, uuid string, memory muster.Size) int64 {
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
