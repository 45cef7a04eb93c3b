package queue

import (
	"slices"

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

// WorkerOwner is the scheduler's worker of a Worker.
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

// changeList lists workers by their last change, newest first, so that a reader sees
// only those that changed since it last read.
type changeList struct {
	latest *changeNode
	seq    uint64 // changes of any worker
	length int
}

// changeNode is a worker's node in a changeList. It is in none while seq is 0.
type changeNode struct {
	worker       *Worker
	seq          uint64 // changeList.seq at its last change
	newer, older *changeNode
}

// moveToFront records a change of a worker.
func (c *changeList) moveToFront(k *changeNode, w *Worker) {
	if k.seq == 0 {
		k.worker = w
		c.length++
	}
	c.seq++
	k.seq = c.seq
	if c.latest == k {
		return
	}
	c.unlink(k)
	k.older = c.latest
	if c.latest != nil {
		c.latest.newer = k
	}
	c.latest = k
}

// remove removes a worker.
func (c *changeList) remove(k *changeNode) {
	c.unlink(k)
	c.length--
	k.seq = 0
}

func (c *changeList) unlink(k *changeNode) {
	if k.newer != nil {
		k.newer.older = k.older
	}
	if k.older != nil {
		k.older.newer = k.newer
	}
	if c.latest == k {
		c.latest = k.older
	}
	k.newer, k.older = nil, nil
}

// check checks that the list has so many workers, in order.
func (c *changeList) check(workers int) error {
	listed := 0
	for k := c.latest; k != nil; k = k.older {
		listed++
		if k.older != nil && (k.older.newer != k || k.older.seq >= k.seq) {
			return broken("a list of changes is out of order at worker %s", k.worker.Usage.Worker.ID)
		}
	}
	if listed != workers || c.length != workers {
		return broken("%d workers are in a list of changes, %d are counted, %d are known", listed, c.length, workers)
	}
	return nil
}

// AvoidList lists workers that a task avoids for a while, because they rejected or
// failed it.
type AvoidList []Avoidance

// Avoidance is an entry of an AvoidList.
type Avoidance struct {
	Worker  *Worker
	Until   muster.Time
	Failed  bool   // the task failed there
	Message string // the worker's reason
}

// Active returns the entries that have not expired.
func (s AvoidList) Active(now muster.Time) AvoidList {
	return slices.DeleteFunc(slices.Clone(s), func(a Avoidance) bool { return a.Until <= now })
}

// Has reports whether w is in the list.
func (s AvoidList) Has(w *Worker) bool {
	return slices.ContainsFunc(s, func(a Avoidance) bool { return a.Worker == w })
}

// ForWorker returns the active entry of w that lasts longest, or the zero Avoidance.
func (s AvoidList) ForWorker(w *Worker, now muster.Time) (last Avoidance) {
	for _, a := range s {
		if a.Worker == w && a.Until > max(last.Until, now) {
			last = a
		}
	}
	return last
}

// NextExpiry returns when the first entry expires, or 0 if there is none.
func (s AvoidList) NextExpiry() (at muster.Time) {
	for _, a := range s {
		at = Earlier(at, a.Until)
	}
	return at
}
