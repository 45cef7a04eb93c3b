package place

import (
	"cmp"
	"slices"

	"github.com/muster-dev/muster"
)

// Grant says what a task with need n would be given. It changes nothing; call it
// only where Fits returned Fits.
func (b *Book) Grant(n *Need) muster.Grant {
	g := muster.Grant{Memory: n.Request.Memory, Disk: n.Request.Disk, PIDs: n.Request.PIDs}
	if n.mcpu > 0 {
		g.CPUs = float64(n.mcpu) / 1000
	} else {
		g.Slots = 1
	}
	if n.Request.GPUs.Count == 0 {
		return g
	}
	picked, _ := b.pick(n)
	g.GPUs = make([]string, len(picked))
	for i, d := range picked {
		g.GPUs[i] = b.gpus[d].gpu.UUID
	}
	if n.shares() {
		g.GPUMemory = n.Request.GPUs.Memory
	}
	return g
}

// pick chooses the tightest devices of one vendor: those whose memory would lie
// idle the least. It returns their positions in order, and the idle memory.
func (b *Book) pick(n *Need) (best []int, waste muster.Size) {
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

// Score says how good it is to put n here: more is better. It means something
// only where Fits returned Fits, and only beside other scores for the same need.
//
// Without GPUs it is the least free share, after the grant, of what is asked
// for: 0 to 1. With GPUs it is minus the device memory, in MiB, that would lie
// idle, and, where that is equal, the worker with fewer free devices wins.
func (b *Book) Score(n *Need) float64 {
	if n.Request.GPUs.Count > 0 {
		_, waste := b.pick(n)
		free := 0
		for i := range b.gpus {
			if b.gpus[i].idle() {
				free++
			}
		}
		return -float64(waste>>20) - float64(free)/1024
	}
	r := &b.Worker.Resources
	var score float64
	if n.mcpu > 0 {
		score = share(b.mcpu-n.mcpu, Milli(r.CPUs))
	} else {
		score = share(int64(b.slots-1), int64(r.Slots))
	}
	if m := n.Request.Memory; m > 0 {
		score = min(score, share(int64(b.memory-m), int64(r.Memory)))
	}
	if d := n.Request.Disk; d > 0 {
		score = min(score, share(int64(b.disk-d), int64(r.Disk)))
	}
	return score
}

func share(free, all int64) float64 {
	if all <= 0 {
		return 0
	}
	return float64(free) / float64(all)
}
