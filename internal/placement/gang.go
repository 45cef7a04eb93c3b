package placement

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/muster-dev/muster"
)

// GangFit is how many members of a gang fit on one worker, or are placed there. With
// GPUs all of its members get devices of one vendor.
type GangFit struct {
	Usage   *WorkerUsage
	Members int
	Vendor  string // "" without GPUs
	Models  string // sorted names of the suitable devices; "" without GPUs
}

// GangFit returns how many tasks with need n fit on the worker now, up to limit.
func (b *WorkerUsage) GangFit(n *Need, limit int) GangFit {
	if b.Fits(n) != Fits {
		return GangFit{Usage: b}
	}
	return b.countMembers(n, limit)
}

// GangFitEmpty is GangFit as if the worker were open and empty.
func (b *WorkerUsage) GangFitEmpty(n *Need, limit int) GangFit {
	if b.FitsEmpty(n) != Fits {
		return GangFit{Usage: b}
	}
	empty := NewWorkerUsage(b.Worker)
	r := empty.countMembers(n, limit)
	r.Usage = b
	return r
}

// countMembers is GangFit on a worker where n fits at least once.
func (b *WorkerUsage) countMembers(n *Need, limit int) GangFit {
	r := GangFit{Usage: b, Members: limit}
	for _, f := range counted {
		if each := n.amounts[f]; each > 0 {
			r.Members = int(min(int64(r.Members), b.available(f, false)/each))
		}
	}
	if n.Request.GPUs.Count == 0 {
		return r
	}
	best := GangFit{Usage: b}
	for _, vendor := range b.suitable(n, func(d *device) string { return d.gpu.Vendor }) {
		v := n.WithVendor(vendor)
		models := b.suitable(v, func(d *device) string { return d.gpu.Name })
		fitting := GangFit{Usage: b, Vendor: vendor, Models: strings.Join(models, ", ")}
		c := WorkerUsage{gpus: slices.Clone(b.gpus)}
		for fitting.Members < r.Members && c.hasDevices(v, false) {
			g := c.Grant(v)
			c.apply(&muster.Grant{GPUs: g.GPUs, GPUMemory: g.GPUMemory}, 1)
			fitting.Members++
		}
		if fitting.Members > best.Members {
			best = fitting
		}
	}
	return best
}

// suitable returns the sorted, distinct names of the devices that could be granted to n if they were free.
func (b *WorkerUsage) suitable(n *Need, name func(*device) string) []string {
	var list []string
	for i := range b.gpus {
		d := &b.gpus[i]
		if _, ok := d.usable(n, true); ok && !slices.Contains(list, name(d)) {
			list = append(list, name(d))
		}
	}
	slices.Sort(list)
	return list
}

// WithVendor returns n restricted to a GPU vendor.
func (n *Need) WithVendor(vendor string) *Need {
	if n.Request.GPUs.Count == 0 || n.Request.GPUs.Vendor == vendor {
		return n
	}
	c := *n
	c.Request.GPUs.Vendor = vendor
	return &c
}

// Pack chooses workers for a gang of n members: as few as possible, and among those the
// ones with the least room to spare. GPUs are of one vendor, and of one model if
// possible. It returns how many members each takes, the most first, or nil if they do
// not fit. It sorts fits.
func Pack(fits []GangFit, n int) []GangFit {
	if best := packBy(fits, n, func(r *GangFit) string { return r.Vendor + "\x00" + r.Models }); best != nil {
		return best
	}
	return packBy(fits, n, func(r *GangFit) string { return r.Vendor })
}

// packBy is Pack from workers with equal keys.
func packBy(fits []GangFit, n int, key func(*GangFit) string) []GangFit {
	slices.SortFunc(fits, func(x, y GangFit) int {
		return cmp.Or(strings.Compare(key(&x), key(&y)), cmp.Compare(y.Members, x.Members), cmp.Compare(x.Usage.Worker.ID, y.Usage.Worker.ID))
	})
	var best []GangFit
	for len(fits) > 0 {
		k := 1
		for k < len(fits) && key(&fits[k]) == key(&fits[0]) {
			k++
		}
		if packed := packSorted(fits[:k], n); packed != nil && (best == nil || len(packed) < len(best)) {
			best = packed
		}
		fits = fits[k:]
	}
	return best
}

// packSorted takes the roomiest workers until one can take the remaining members, and
// for those the tightest that can. fits are sorted, the roomiest first.
func packSorted(fits []GangFit, n int) []GangFit {
	var packed []GangFit
	for i := range fits {
		if fits[i].Members >= n {
			last := i
			for last+1 < len(fits) && fits[last+1].Members >= n {
				last++
			}
			for last > i && fits[last-1].Members == fits[last].Members { // the first by id
				last--
			}
			r := fits[last]
			r.Members = n
			return append(packed, r)
		}
		if fits[i].Members == 0 {
			return nil
		}
		packed = append(packed, fits[i])
		n -= fits[i].Members
	}
	return nil
}

// sumGangFit returns how many members of the gang fit on all workers together now, and
// how many would if all workers were open and empty.
func sumGangFit(evals []Evaluation) (now, whenEmpty int) {
	n := evals[0].Need
	free, empty := map[string]int{}, map[string]int{}
	for i := range evals {
		a := &evals[i]
		if a.fits() {
			r := a.Usage.GangFit(n, n.Gang)
			free[r.Vendor] += r.Members
			now = max(now, free[r.Vendor])
		}
		r := a.Usage.GangFitEmpty(n, n.Gang)
		empty[r.Vendor] += r.Members
		whenEmpty = max(whenEmpty, empty[r.Vendor])
	}
	return now, whenEmpty
}

func summarizeGang(evals []Evaluation) string {
	n := evals[0].Need.Gang
	now, whenEmpty := sumGangFit(evals)
	switch {
	case now >= n:
		return fmt.Sprintf("can start now: there is room for all %d tasks of the gang", n)
	case whenEmpty >= n:
		return fmt.Sprintf("waits for room: the gang needs room for %d tasks at once, and there is room for %d now", n, now)
	case countEngineFixable(evals) > 0:
		return fmt.Sprintf("waits for container engines: the gang needs room for %d tasks at once, and the workers with one that is ready have room for %d", n, whenEmpty)
	default:
		return fmt.Sprintf("%s: the gang needs room for %d tasks at once, and the workers together have room for %d", muster.SummaryUnschedulable, n, whenEmpty)
	}
}

func nearestGang(evals []Evaluation) string {
	n := evals[0].Need.Gang
	switch now, whenEmpty := sumGangFit(evals); {
	case now >= n:
		return ""
	case whenEmpty >= n:
		return fmt.Sprintf("wait for room for %d more", n-now)
	case countEngineFixable(evals) > 0:
		i := slices.IndexFunc(evals, func(a Evaluation) bool { return a.Empty == Engine && a.fixable() })
		return evals[i].waitAdvice()
	case whenEmpty == 0:
		return "see what each worker lacks, or start workers that fit"
	default:
		return fmt.Sprintf("start workers with room for %d more, or make the gang no larger than %d", n-whenEmpty, whenEmpty)
	}
}
