package placement

import (
	"cmp"
	"slices"

	"github.com/muster-dev/muster"
)

// Grant returns the grant for a task with need n. It changes nothing. Call it only where
// n fits.
func (b *WorkerUsage) Grant(n *Need) muster.Grant {
	g := muster.Grant{
		CPUs: float64(n.amounts[CPUs]) / 1000, Slots: int(n.amounts[Slots]), Memory: n.Request.Memory, Disk: n.Request.Disk, PIDs: n.Request.PIDs,
	}
	if n.Request.GPUs.Count == 0 {
		return g
	}
	picked, _ := b.pickDevices(n)
	g.GPUs = make([]string, len(picked))
	for i, d := range picked {
		g.GPUs[i] = b.gpus[d].gpu.UUID
	}
	if n.sharesGPU() {
		g.GPUMemory = n.Request.GPUs.Memory
	}
	return g
}

// pickDevices chooses the tightest devices of one vendor: those that leave the least
// memory idle. It returns their positions in order, and the idle memory.
func (b *WorkerUsage) pickDevices(n *Need) (best []int, waste muster.Size) {
	type candidate struct {
		at    int
		waste muster.Size
	}
	var list []candidate
	for i := range b.gpus {
		list = list[:0]
		for j := i; j < len(b.gpus); j++ {
			if b.gpus[j].gpu.Vendor != b.gpus[i].gpu.Vendor {
				continue
			}
			if w, ok := b.gpus[j].usable(n, false); ok {
				list = append(list, candidate{j, w})
			}
		}
		count := n.Request.GPUs.Count
		if len(list) < count {
			continue
		}
		slices.SortStableFunc(list, func(x, y candidate) int { return cmp.Compare(x.waste, y.waste) })
		var sum muster.Size
		for _, c := range list[:count] {
			sum += c.waste
		}
		if best != nil && sum >= waste {
			continue
		}
		best, waste = best[:0], sum
		for _, c := range list[:count] {
			best = append(best, c.at)
		}
	}
	slices.Sort(best)
	return best, waste
}

// Rank is how well a worker suits a task, compared with other ranks for the same need.
type Rank struct {
	idle  float64 // device memory, in MiB, that would be idle
	price float64 // of the worker
	free  float64 // least free share of the requested resources after the grant, 0 to 1; with GPUs the negative number of free devices
}

// Compare is negative if r is better than o: less idle device memory, else a lower
// price, else more free resources, or with GPUs fewer free devices.
func (r *Rank) Compare(o *Rank) int {
	return cmp.Or(cmp.Compare(r.idle, o.idle), cmp.Compare(r.price, o.price), cmp.Compare(o.free, r.free))
}

// Rank ranks the worker for a task with need n, which must fit.
func (b *WorkerUsage) Rank(n *Need) Rank {
	rank := Rank{price: b.Worker.Price}
	if n.Request.GPUs.Count > 0 {
		_, waste := b.pickDevices(n)
		rank.idle = float64(waste >> 20)
		for i := range b.gpus {
			if b.gpus[i].idle() {
				rank.free--
			}
		}
		return rank
	}
	rank.free = 1
	for _, f := range counted {
		if need := n.amounts[f]; need > 0 {
			rank.free = min(rank.free, Ratio(b.free[f]-need, b.offers[f]))
		}
	}
	return rank
}

// Ratio returns free/all, or 0 if all is not positive.
func Ratio(free, all int64) float64 {
	if all <= 0 {
		return 0
	}
	return float64(free) / float64(all)
}
