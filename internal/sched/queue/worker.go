package queue

import (
	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/placement"
)

// Worker is a worker in the index. Call Queue.LoadChanged whenever Usage or Suspect has
// changed, and Queue.SpecChanged first and whenever its description changes or it opens or
// closes.
type Worker struct {
	Usage   *placement.WorkerUsage
	Owner   WorkerOwner
	Suspect bool // attempts failed there by the worker's fault: other workers that fit are preferred

	loadNode    changeNode // in Queue.loadChanges
	specNode    changeNode // in Queue.specChanges
	open        bool
	reservedFor *bucket // or nil
}

// WorkerOwner is what a Worker stands for.
type WorkerOwner interface {
	// FreeIn estimates in how long the worker, which could run so many tasks with need n
	// if it were empty, will have room for them. Unless since is 0, it ignores tasks
	// assigned since then.
	FreeIn(now muster.Time, n *placement.Need, tasks int, since muster.Time) muster.Duration
}

// LoadChanged records that the usage of w changed.
func (q *Queue) LoadChanged(w *Worker) { q.loadChanges.moveToFront(&w.loadNode, w) }

// SpecChanged records that w is new, changed its description, opened or closed.
func (q *Queue) SpecChanged(w *Worker) {
	q.LoadChanged(w)
	q.specChanges.moveToFront(&w.specNode, w)
	q.setOpen(w, w.Usage.ClosedReason == "")
	if w.reservedFor != nil && !w.feasible(w.reservedFor.key.shape) {
		q.releaseReservation(w.reservedFor)
	}
	q.reviewNeeded = q.reviewNeeded || len(q.starving) > 0
}

// RemoveWorker removes a worker, which must be closed.
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

// feasible reports whether the worker is open and could run sh if it were empty.
func (w *Worker) feasible(sh *Shape) bool {
	return w.Usage.ClosedReason == "" && w.Usage.FitsEmpty(sh.Need) == placement.Fits
}
