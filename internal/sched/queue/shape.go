package queue

import (
	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/place"
)

// Worker is a worker in the index, with its account. Tell Queue.Changed whenever
// what its Book says has changed, and at first.
type Worker struct {
	Book *place.Book

	changed      uint64 // Queue.changes at its last change
	newer, older *Worker
}

// Changed notes that what w can be given has changed.
func (q *Queue) Changed(w *Worker) {
	if w.changed == 0 {
		q.workers++
	}
	q.changes++
	w.changed = q.changes
	if q.latest == w {
		return
	}
	q.unlink(w)
	w.older = q.latest
	if q.latest != nil {
		q.latest.newer = w
	}
	q.latest = w
}

// Forget takes a worker, which must be closed, out of the index.
func (q *Queue) Forget(w *Worker) {
	q.unlink(w)
	q.workers--
	w.changed = 0
}

// unlink takes w out of the list of changes.
func (q *Queue) unlink(w *Worker) {
	if w.newer != nil {
		w.newer.older = w.older
	}
	if w.older != nil {
		w.older.newer = w.newer
	}
	if q.latest == w {
		q.latest = w.older
	}
	w.newer, w.older = nil, nil
}

// Shape is a need together with an index of the workers that fit it, best first.
type Shape struct {
	Need *place.Need

	Held    int             // tasks of this shape on workers
	Ran     int64           // that succeeded
	Runtime muster.Duration // of all of these together

	lanes     int
	parked    []*lane
	forgotten bool
	seen      uint64 // Queue.changes up to which fits is right
	fits      []fit  // a heap; may hold outdated entries, but never first after refresh
}

// Forgotten reports whether the queue made room for others: ask it for the need's
// Shape again.
func (sh *Shape) Forgotten() bool { return sh.forgotten }

// fit says that a worker fitted at its change with the number version. It is
// outdated as soon as the worker changes again.
type fit struct {
	worker  *Worker
	version uint64
	score   float64
}

func (f *fit) outdated() bool { return f.version != f.worker.changed }

func (f *fit) before(o *fit) bool {
	if f.score != o.score {
		return f.score > o.score
	}
	return f.worker.Book.Worker.ID < o.worker.Book.Worker.ID
}

// refresh brings the index up to date and reports whether any worker fits.
func (q *Queue) refresh(sh *Shape) bool {
	for w := q.latest; w != nil && w.changed > sh.seen; w = w.older {
		if w.Book.Fits(sh.Need) == place.Fits {
			sh.push(fit{worker: w, version: w.changed, score: w.Book.Score(sh.Need)})
		}
	}
	sh.seen = q.changes
	for len(sh.fits) > 0 && sh.fits[0].outdated() {
		sh.pop()
	}
	if len(sh.fits) > 2*q.workers+16 {
		sh.compact()
	}
	return len(sh.fits) > 0
}

// Best returns the best worker that fits and is not avoided, or nil. Without such
// a worker, shy reports whether an avoided one fits. avoid may be nil.
func (q *Queue) Best(sh *Shape, avoid func(*Worker) bool) (w *Worker, shy bool) {
	if !q.refresh(sh) {
		return nil, false
	}
	if avoid == nil {
		return sh.fits[0].worker, false
	}
	var passed []fit
	for len(sh.fits) > 0 && w == nil {
		switch top := &sh.fits[0]; {
		case top.outdated():
			sh.pop()
		case avoid(top.worker):
			passed = append(passed, *top)
			sh.pop()
		default:
			w = top.worker
		}
	}
	for _, f := range passed {
		sh.push(f)
	}
	return w, w == nil
}

func (sh *Shape) push(f fit) {
	sh.fits = append(sh.fits, f)
	h := sh.fits
	i := len(h) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if !h[i].before(&h[parent]) {
			return
		}
		h[i], h[parent] = h[parent], h[i]
		i = parent
	}
}

func (sh *Shape) pop() {
	last := len(sh.fits) - 1
	sh.fits[0] = sh.fits[last]
	sh.fits[last] = fit{}
	sh.fits = sh.fits[:last]
	sh.sink(0)
}

func (sh *Shape) sink(i int) {
	h := sh.fits
	for {
		child := 2*i + 1
		if child >= len(h) {
			return
		}
		if r := child + 1; r < len(h) && h[r].before(&h[child]) {
			child = r
		}
		if !h[child].before(&h[i]) {
			return
		}
		h[i], h[child] = h[child], h[i]
		i = child
	}
}

// compact drops all outdated entries.
func (sh *Shape) compact() {
	kept := sh.fits[:0]
	for i := range sh.fits {
		if !sh.fits[i].outdated() {
			kept = append(kept, sh.fits[i])
		}
	}
	clear(sh.fits[len(kept):])
	sh.fits = kept
	for i := len(kept)/2 - 1; i >= 0; i-- {
		sh.sink(i)
	}
}
