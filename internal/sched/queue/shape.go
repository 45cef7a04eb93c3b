package queue

import (
	"cmp"
	"container/heap"
	"slices"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/placement"
)

// Shape is a need with an index of the workers that fit it, best first.
type Shape struct {
	Need *placement.Need

	Held    int             // tasks of this shape on workers
	Ran     int64           // tasks that succeeded
	Runtime muster.Duration // of all of these together

	buckets      int
	parked       []*bucket
	evicted      bool
	seen         uint64           // Queue.loadChanges.seq up to which fits, reserved and gangIndex are current
	fits         fitHeap          // may hold outdated entries, but never first after refresh
	reserved     []fit            // on reserved workers; none outdated after refresh
	gangIndex    gangIndex        // of a gang, instead of fits and reserved
	feasibleSeen uint64           // Queue.specChanges.seq up to which feasible is current
	feasible     []feasibleWorker // in order of discovery; may hold outdated entries
	sampleOffset int              // number of samples of feasible taken
}

// Evicted reports whether the queue dropped the shape: call Queue.Shape again.
func (sh *Shape) Evicted() bool { return sh.evicted }

// fit is a worker that fits as of its change with the number version. It is outdated as
// soon as the worker changes again.
type fit struct {
	worker  *Worker
	version uint64
	suspect bool
	rank    placement.Rank
}

func (f *fit) outdated() bool { return f.version != f.worker.loadNode.seq }

func (f *fit) before(o *fit) bool {
	if f.suspect != o.suspect {
		return o.suspect
	}
	return cmp.Or(f.rank.Compare(&o.rank), cmp.Compare(f.worker.Usage.Worker.ID, o.worker.Usage.Worker.ID)) < 0
}

// fitHeap implements heap.Interface: the best fit is first.
type fitHeap []fit

func (h fitHeap) Len() int           { return len(h) }
func (h fitHeap) Less(i, j int) bool { return h[i].before(&h[j]) }
func (h fitHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (fitHeap) Push(any)             {} // see Shape.push, which allocates nothing
func (fitHeap) Pop() any             { return nil }

// refresh updates the index and reports whether any worker fits that is not reserved or,
// for a gang, enough of them do.
func (q *Queue) refresh(sh *Shape) bool {
	if sh.Need.Gang > 0 {
		return q.refreshGangIndex(sh)
	}
	if len(sh.reserved) > 0 {
		sh.reserved = slices.DeleteFunc(sh.reserved, func(f fit) bool { return f.outdated() })
	}
	for k := q.loadChanges.latest; k != nil && k.seq > sh.seen; k = k.older {
		w := k.worker
		if w.Usage.Fits(sh.Need) != placement.Fits {
			continue
		}
		if f := (fit{worker: w, version: k.seq, suspect: w.Suspect, rank: w.Usage.Rank(sh.Need)}); w.reservedFor != nil {
			sh.reserved = append(sh.reserved, f)
		} else {
			sh.push(f)
		}
	}
	sh.seen = q.loadChanges.seq
	for len(sh.fits) > 0 && sh.fits[0].outdated() {
		sh.pop()
	}
	if len(sh.fits) > 2*q.loadChanges.length+16 {
		sh.compact()
	}
	return len(sh.fits) > 0
}

// Best returns the best worker for the item that fits and is not avoided, or nil. It
// returns a reserved one only if there is no other. Without such a worker, onlyAvoided
// reports whether an avoided one fits. avoid may be nil.
func (q *Queue) Best(now muster.Time, it *Item, avoid func(*Worker) bool) (w *Worker, onlyAvoided bool) {
	sh := it.bucket.key.shape
	if q.refresh(sh) {
		if w = sh.best(avoid); w != nil {
			return w, false
		}
		onlyAvoided = true
	}
	var best *fit
	for i := range sh.reserved {
		f := &sh.reserved[i]
		switch {
		case !q.mayUse(now, it.bucket, f.worker):
		case avoid != nil && avoid(f.worker):
			onlyAvoided = true
		case best == nil || f.before(best):
			best = f
		}
	}
	if best == nil {
		return nil, onlyAvoided
	}
	return best.worker, false
}

// best returns the best worker of an updated index that is not avoided, or nil.
func (sh *Shape) best(avoid func(*Worker) bool) (w *Worker) {
	if avoid == nil {
		return sh.fits[0].worker
	}
	var avoided []fit
	for len(sh.fits) > 0 && w == nil {
		switch top := &sh.fits[0]; {
		case top.outdated():
			sh.pop()
		case avoid(top.worker):
			avoided = append(avoided, *top)
			sh.pop()
		default:
			w = top.worker
		}
	}
	for _, f := range avoided {
		sh.push(f)
	}
	return w
}

func (sh *Shape) push(f fit) {
	sh.fits = append(sh.fits, f)
	heap.Fix(&sh.fits, len(sh.fits)-1)
}

func (sh *Shape) pop() {
	last := len(sh.fits) - 1
	sh.fits[0], sh.fits[last] = sh.fits[last], fit{}
	sh.fits = sh.fits[:last]
	if last > 0 {
		heap.Fix(&sh.fits, 0)
	}
}

// compact drops all outdated entries.
func (sh *Shape) compact() {
	sh.fits = slices.DeleteFunc(sh.fits, func(f fit) bool { return f.outdated() })
	heap.Init(&sh.fits)
}
