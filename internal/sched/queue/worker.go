package queue

import (
	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/placement"
)

// Worker is a worker in the index, with its account. Tell Queue.Changed whenever
// what its Book says or Suspect has changed, and Queue.Reopened at first and whenever it
// describes itself anew, opens or closes.
type Worker struct {
	Usage   *placement.WorkerUsage
	Owner   WorkerOwner
	Suspect bool // attempts failed there through no fault of their own: others that fit go first

	loadNode    changeNode // by any change
	specNode    changeNode // by the changes that Reopened is told of
	open        bool
	reservedFor *bucket // for whose first task it is kept free
}

// WorkerOwner is what a Worker stands for.
type WorkerOwner interface {
	// FreeIn guesses in how long the worker, which could run so many tasks with need n
	// if it were empty, will have ended enough to run them. Unless since is 0, it
	// leaves out what it was given since then.
	FreeIn(now muster.Time, n *placement.Need, tasks int, since muster.Time) muster.Duration
}

// LoadChanged notes that what w can be given has changed.
func (q *Queue) LoadChanged(w *Worker) { q.loadChanges.moveToFront(&w.loadNode, w) }

// SpecChanged notes that w is new, describes itself anew, opened or closed.
func (q *Queue) SpecChanged(w *Worker) {
	q.LoadChanged(w)
	q.specChanges.moveToFront(&w.specNode, w)
	q.setOpen(w, w.Usage.ClosedReason == "")
	if w.reservedFor != nil && !w.feasible(w.reservedFor.key.shape) {
		q.releaseReservation(w.reservedFor)
	}
	q.reviewNeeded = q.reviewNeeded || len(q.starving) > 0
}

// RemoveWorker takes a worker, which must be closed, out of the index.
func (q *Queue) RemoveWorker(w *Worker) {
	q.setOpen(w, false)
	for _, sh := range q.shapes {
		sh.gangIndex.remove(w)
	}
	q.loadChanges.remove(&w.loadNode)
	q.specChanges.remove(&w.specNode)
}

func (q *Queue) setOpen(w *Worker, open bool) {
	if open != w.open {
		w.open = open
		if open {
			q.openWorkers++
		} else {
			q.openWorkers--
		}
	}
}

// feasible reports whether the worker could run what sh needs if it were empty.
func (w *Worker) feasible(sh *Shape) bool {
	return w.Usage.ClosedReason == "" && w.Usage.FitsEmpty(sh.Need) == placement.Fits
}
