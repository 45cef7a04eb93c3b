package queue

import (
	"cmp"
	"slices"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/placement"
)

// gangIndex is the index of a gang's shape: how many members fit on each worker, and on
// all workers together by the vendor of their GPUs.
type gangIndex struct {
	byWorker   map[*Worker]capacity
	total      map[string]int
	unreserved map[string]int // of workers that are not reserved
}

type capacity struct {
	placement.GangFit
	reserved bool
}

// update updates a worker's entry.
func (c *gangIndex) update(w *Worker, n *placement.Need) {
	c.remove(w)
	b := capacity{w.Usage.GangFit(n, n.Gang), w.reservedFor != nil}
	if b.Members == 0 {
		return
	}
	if c.byWorker == nil {
		*c = gangIndex{map[*Worker]capacity{}, map[string]int{}, map[string]int{}}
	}
	c.byWorker[w] = b
	c.count(&b, 1)
}

func (c *gangIndex) remove(w *Worker) {
	if b, ok := c.byWorker[w]; ok {
		delete(c.byWorker, w)
		c.count(&b, -1)
	}
}

func (c *gangIndex) count(b *capacity, sign int) {
	c.total[b.Vendor] += sign * b.Members
	if !b.reserved {
		c.unreserved[b.Vendor] += sign * b.Members
	}
}

// hasSuspects reports whether one of the workers is suspect.
func (c *gangIndex) hasSuspects() bool {
	for w := range c.byWorker {
		if w.Suspect {
			return true
		}
	}
	return false
}

// maxByVendor returns the maximum of all vendors.
func maxByVendor(total map[string]int) int {
	n := 0
	for _, k := range total {
		n = max(n, k)
	}
	return n
}

// refreshGangIndex updates the index and reports whether the whole gang fits on workers
// that are not reserved.
func (q *Queue) refreshGangIndex(sh *Shape) bool {
	for k := q.loadChanges.latest; k != nil && k.seq > sh.seen; k = k.older {
		sh.gangIndex.update(k.worker, sh.Need)
	}
	sh.seen = q.loadChanges.seq
	return maxByVendor(sh.gangIndex.unreserved) >= sh.Need.Gang
}

// PackGang chooses workers for the item's gang and how many members each takes, or
// returns nil. It takes reserved workers only if there are not enough others. If there
// are too few workers, onlyAvoided reports whether the avoided ones would be enough.
// avoid may be nil.
func (q *Queue) PackGang(now muster.Time, it *Item, avoid func(*Worker) bool) (fits []placement.GangFit, onlyAvoided bool) {
	sh := it.bucket.key.shape
	c := &sh.gangIndex
	if q.refreshGangIndex(sh) {
		if c.hasSuspects() { // they are used only if there are not enough others
			fits, _ = c.pack(sh.Need.Gang, avoid, func(w *Worker, b *capacity) bool { return !b.reserved && !w.Suspect })
			if fits != nil {
				return fits, false
			}
		}
		fits, onlyAvoided = c.pack(sh.Need.Gang, avoid, func(_ *Worker, b *capacity) bool { return !b.reserved })
	}
	if fits == nil && maxByVendor(c.total) >= sh.Need.Gang {
		fits, onlyAvoided = c.pack(sh.Need.Gang, avoid, func(w *Worker, b *capacity) bool { return !b.reserved || q.mayUse(now, it.bucket, w) })
	}
	return fits, onlyAvoided
}

func (c *gangIndex) pack(n int, avoid func(*Worker) bool, allowed func(*Worker, *capacity) bool) (usable []placement.GangFit, onlyAvoided bool) {
	var avoided []placement.GangFit
	for w, b := range c.byWorker {
		switch {
		case !allowed(w, &b):
		case avoid != nil && avoid(w):
			avoided = append(avoided, b.GangFit)
		default:
			usable = append(usable, b.GangFit)
		}
	}
	if packed := placement.Pack(usable, n); packed != nil {
		return packed, false
	}
	return nil, len(avoided) > 0 && placement.Pack(append(usable, avoided...), n) != nil
}

// canPackGang reports whether a gang of l fits, with the reserved workers that it may use.
func (q *Queue) canPackGang(now muster.Time, l *bucket) bool {
	c, n := &l.key.shape.gangIndex, l.key.shape.Need.Gang
	if maxByVendor(c.total) < n {
		return false
	}
	total := map[string]int{}
	for w, b := range c.byWorker {
		if !b.reserved || q.mayUse(now, l, w) {
			if total[b.Vendor] += b.Members; total[b.Vendor] >= n {
				return true
			}
		}
	}
	return false
}

// candidate is a worker that could be reserved.
type candidate struct {
	worker *Worker
	fit    placement.GangFit // when it is empty
	freeIn muster.Duration
}

// selectWorkers chooses the workers that will have room soonest, as many as the gang
// needs, all with GPUs of one vendor. It returns nil if there are too few. It sorts
// candidates.
func selectWorkers(candidates []candidate, n int) (ws []*Worker, freeIn muster.Duration) {
	slices.SortFunc(candidates, func(x, y candidate) int {
		return cmp.Or(cmp.Compare(x.freeIn, y.freeIn), cmp.Compare(x.worker.Usage.Worker.ID, y.worker.Usage.Worker.ID))
	})
	total := map[string]int{}
	for i := range candidates {
		c := &candidates[i]
		v := c.fit.Vendor
		if total[v] += c.fit.Members; total[v] < n {
			continue
		}
		for _, c := range candidates[:i+1] {
			if c.fit.Vendor == v {
				ws = append(ws, c.worker)
			}
		}
		return ws, c.freeIn
	}
	return nil, 0
}
