package sched

import (
	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/place"
)

// shape is a need together with an index of the workers that fit it now, best
// first. The index is brought up to date when it is asked, by looking at those
// workers only that changed since the last time: a full or unreachable worker
// that stays so costs nothing.
type shape struct {
	need      *place.Need
	lanes     int
	parked    []*lane
	forgotten bool   // by the queue: another shape may stand for the same need
	seen      uint64 // State.changes up to which fits is right
	fits      []fit  // a heap; may hold outdated entries, but never first after refresh

	held    int             // tasks of this shape on workers
	ran     int64           // that succeeded
	runtime muster.Duration // of all of these together
}

// fit says that a worker fitted at its change with the number version. It is
// outdated as soon as the worker changes again.
type fit struct {
	worker  *worker
	version uint64
	score   float64
}

func (f *fit) outdated() bool { return f.version != f.worker.changed }

func (f *fit) before(o *fit) bool {
	if f.score != o.score {
		return f.score > o.score
	}
	return byID(f.worker, o.worker) < 0
}

// bump notes that what w can be given has changed.
func (s *State) bump(w *worker) {
	s.changes++
	w.changed = s.changes
	if s.latest == w {
		return
	}
	s.unlink(w)
	w.older = s.latest
	if s.latest != nil {
		s.latest.newer = w
	}
	s.latest = w
}

// unlink takes w out of the list of changes.
func (s *State) unlink(w *worker) {
	if w.newer != nil {
		w.newer.older = w.older
	}
	if w.older != nil {
		w.older.newer = w.newer
	}
	if s.latest == w {
		s.latest = w.older
	}
	w.newer, w.older = nil, nil
}

// refresh brings the index up to date and reports whether any worker fits.
func (s *State) refresh(sh *shape) bool {
	for w := s.latest; w != nil && w.changed > sh.seen; w = w.older {
		if w.book.Fits(sh.need) == place.Fits {
			sh.push(fit{worker: w, version: w.changed, score: w.book.Score(sh.need)})
		}
	}
	sh.seen = s.changes
	for len(sh.fits) > 0 && sh.fits[0].outdated() {
		sh.pop()
	}
	if len(sh.fits) > 2*len(s.order)+16 {
		sh.compact()
	}
	return len(sh.fits) > 0
}

// best returns the best worker that fits and is not avoided, or nil. shy reports
// whether only avoided workers fit.
func (s *State) best(sh *shape, avoid []avoidance) (w *worker, shy bool) {
	if !s.refresh(sh) {
		return nil, false
	}
	var passed []fit
	for len(sh.fits) > 0 {
		if top := &sh.fits[0]; top.outdated() {
			sh.pop()
		} else if avoided(avoid, top.worker) {
			passed = append(passed, *top)
			sh.pop()
		} else {
			w = top.worker
			break
		}
	}
	for _, f := range passed {
		sh.push(f)
	}
	return w, w == nil
}

func avoided(list []avoidance, w *worker) bool {
	for _, a := range list {
		if a.worker == w {
			return true
		}
	}
	return false
}

func (sh *shape) push(f fit) {
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

func (sh *shape) pop() {
	last := len(sh.fits) - 1
	sh.fits[0] = sh.fits[last]
	sh.fits[last] = fit{}
	sh.fits = sh.fits[:last]
	sh.sink(0)
}

func (sh *shape) sink(i int) {
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
func (sh *shape) compact() {
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
