package queue

import (
	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/place"
)

// Worker is a worker in the index, with its account. Tell Queue.Changed whenever
// what its Book says or Suspect has changed, and Queue.Reopened at first and whenever it
// describes itself anew, opens or closes.
type Worker struct {
	Book    *place.Book
	Owner   Host
	Suspect bool // attempts failed there through no fault of their own: others that fit go first

	load  link // by any change
	terms link // by the changes that Reopened is told of
	open  bool
	kept  *lane // for whose first task it is kept free
}

// Host is what a Worker stands for.
type Host interface {
	// FreeIn guesses in how long the worker, which could run so many tasks with need n
	// if it were empty, will have ended enough to run them. Unless since is 0, it
	// leaves out what it was given since then.
	FreeIn(now muster.Time, n *place.Need, tasks int, since muster.Time) muster.Duration
}

// Changed notes that what w can be given has changed.
func (q *Queue) Changed(w *Worker) { q.loads.note(&w.load, w) }

// Reopened notes that w is new, describes itself anew, opened or closed.
func (q *Queue) Reopened(w *Worker) {
	q.Changed(w)
	q.terms.note(&w.terms, w)
	q.setOpen(w, w.Book.Closed == "")
	if w.kept != nil && !w.could(w.kept.key.shape) {
		q.release(w.kept)
	}
	q.stale = q.stale || len(q.starving) > 0
}

// Forget takes a worker, which must be closed, out of the index.
func (q *Queue) Forget(w *Worker) {
	q.setOpen(w, false)
	for _, sh := range q.shapes {
		sh.crowd.drop(w)
	}
	q.loads.drop(&w.load)
	q.terms.drop(&w.terms)
}

func (q *Queue) setOpen(w *Worker, open bool) {
	if open != w.open {
		w.open = open
		if open {
			q.open++
		} else {
			q.open--
		}
	}
}

// could reports whether the worker could run what sh needs if it were empty.
func (w *Worker) could(sh *Shape) bool {
	return w.Book.Closed == "" && w.Book.Ever(sh.Need) == place.Fits
}
