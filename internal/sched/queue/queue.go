package queue

import (
	"slices"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/placement"
)

// Queue holds items and the index of workers. Make it with New. It is not safe
// for use by several goroutines.
type Queue struct {
	buckets       map[bucketKey]*bucket
	projectQueues map[projectKey]*projectQueue
	byPriority    [Held + 1][]*projectQueue // in order of creation
	shapes        map[string]*Shape
	idle          []*Shape      // without buckets, oldest first: kept for a while, since an index is expensive
	parked        []*Shape      // with parked buckets
	skipped       []skippedItem // of this Place

	loadChanges changeList // all workers, by their last change of any kind
	specChanges changeList // all workers, by their last change of description or openness
	openWorkers int

	starvationTimeout muster.Duration
	timers            Heap[*starvationTimer] // of blocked buckets and of reservations
	timerSeq          uint64
	starving          []*bucket
	reserved          int  // number of reserved workers
	reviewNeeded      bool // what the reservations depend on has changed since the last review
	released          bool // a reservation ended since the last unparkFitting
}

// Held is the priority of items that are queued but not placed.
const Held = muster.MaxPriority + 1

// maxIdleShapes is how many shapes without a queued task are kept.
const maxIdleShapes = 64

// New makes an empty queue. A worker is reserved for a bucket from which nothing could
// be placed for longer than starvationTimeout.
func New(starvationTimeout muster.Duration) *Queue {
	return &Queue{buckets: map[bucketKey]*bucket{}, projectQueues: map[projectKey]*projectQueue{}, shapes: map[string]*Shape{}, starvationTimeout: starvationTimeout}
}

// Add adds an item.
func (q *Queue) Add(it *Item, priority int, p *Project, sh *Shape) {
	key := bucketKey{projectKey{priority, p}, sh}
	l := q.buckets[key]
	if l == nil {
		l = &bucket{key: key, projectQueue: q.projectQueue(key.projectKey)}
		l.projectQueue.total++
		q.buckets[key] = l
		q.retainShape(sh)
	}
	it.bucket = l
	l.items.Push(it)
	switch {
	case l.parked:
	case l.pos == 0:
		l.projectQueue.buckets.Push(l)
	default:
		l.projectQueue.buckets.Fix(l)
	}
}

// Remove removes a queued item.
func (q *Queue) Remove(it *Item) {
	l := it.bucket
	it.bucket = nil
	l.items.Remove(it)
	q.reorder(l)
}

// Renumber changes the number of a queued item.
func (q *Queue) Renumber(it *Item, num int) {
	it.Num = num
	it.bucket.items.Fix(it)
	q.reorder(it.bucket)
}

// Each calls f for every item, in no order. It is meant for checks.
func (q *Queue) Each(f func(priority int, p *Project, it *Item)) {
	for key, l := range q.buckets {
		for _, it := range l.items {
			f(key.priority, key.project, it)
		}
	}
}

// reorder updates the position of a bucket after its first item changed, and drops the
// bucket if it is empty.
func (q *Queue) reorder(l *bucket) {
	if len(l.items) > 0 {
		if !l.parked {
			l.projectQueue.buckets.Fix(l)
		}
		return
	}
	q.clearStarvation(l)
	if l.parked {
		q.unpark(l)
	} else {
		l.projectQueue.buckets.Remove(l)
	}
	delete(q.buckets, l.key)
	l.projectQueue.total--
	if l.projectQueue.total == 0 {
		delete(q.projectQueues, l.projectQueue.key)
		q.byPriority[l.key.priority] = removeFrom(q.byPriority[l.key.priority], l.projectQueue)
	}
	q.releaseShape(l.key.shape)
}

func (q *Queue) projectQueue(key projectKey) *projectQueue {
	l := q.projectQueues[key]
	if l == nil {
		l = &projectQueue{key: key}
		q.projectQueues[key] = l
		q.byPriority[key.priority] = append(q.byPriority[key.priority], l)
	}
	return l
}

// park sets a bucket aside until a worker changes to fit its shape.
func (q *Queue) park(l *bucket) {
	l.projectQueue.buckets.Remove(l)
	l.parked = true
	sh := l.key.shape
	if len(sh.parked) == 0 {
		q.parked = append(q.parked, sh)
	}
	sh.parked = append(sh.parked, l)
}

// unpark removes a bucket from its shape's parked ones.
func (q *Queue) unpark(l *bucket) {
	sh := l.key.shape
	l.parked = false
	sh.parked = removeFrom(sh.parked, l)
	if len(sh.parked) == 0 {
		q.parked = removeFrom(q.parked, sh)
	}
}

// LookupShape returns the shape for a need if there is one, else nil.
func (q *Queue) LookupShape(n *placement.Need) *Shape { return q.shapes[n.Key()] }

// Shape returns the shape for a need. It is valid until it is Evicted.
func (q *Queue) Shape(n *placement.Need) *Shape {
	sh := q.shapes[n.Key()]
	if sh == nil {
		sh = &Shape{Need: n}
		q.shapes[n.Key()] = sh
		q.markIdle(sh)
	}
	return sh
}

// retainShape counts one more bucket of a shape.
func (q *Queue) retainShape(sh *Shape) {
	if sh.buckets == 0 {
		q.idle = removeFrom(q.idle, sh)
	}
	sh.buckets++
}

// releaseShape counts one bucket less of a shape.
func (q *Queue) releaseShape(sh *Shape) {
	sh.buckets--
	if sh.buckets == 0 {
		q.markIdle(sh)
	}
}

// markIdle lists a shape without buckets, and evicts the one that had none for longest.
func (q *Queue) markIdle(sh *Shape) {
	q.idle = append(q.idle, sh)
	if len(q.idle) > maxIdleShapes {
		q.idle[0].evicted = true
		delete(q.shapes, q.idle[0].Need.Key())
		q.idle = append(q.idle[:0], q.idle[1:]...)
	}
}

// removeFrom removes x from the list, in place and in order.
func removeFrom[T comparable](list []T, x T) []T {
	if i := slices.Index(list, x); i >= 0 {
		return slices.Delete(list, i, i+1)
	}
	return list
}
