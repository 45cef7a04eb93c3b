package queue

import (
	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/place"
	"github.com/muster-dev/muster/internal/sched/heap"
)

// Queue holds items and the index of workers. Make it with New. It is not safe
// for use by several goroutines.
type Queue struct {
	lanes  map[laneKey]*lane
	lines  map[lineKey]*line
	levels [muster.MaxPriority + 1][]*line // by priority; lines in the order of their making
	shapes map[string]*Shape
	idle   []*Shape // without lanes, oldest first: kept for a while, since their index is dear
	parked []*Shape // that have parked lanes
	aside  []exile  // of this Place

	loads chain // all workers, by their last change of any sort
	terms chain // and of what they are, or whether they are open
	open  int   // workers

	patience muster.Duration
	clocks   heap.Heap[*clock] // of lanes that are blocked, and of reservations
	settings uint64            // of clocks
	starving []*lane           // whose patience has ended
	reserved int               // workers that are kept free
	stale    bool              // what the reservations depend on has changed since the last review
	released bool              // a reservation ended since the lanes were brought back
}

// idleShapes is how many shapes without a queued task are remembered.
const idleShapes = 64

// New makes an empty queue. A worker is kept free for a lane from which nothing
// could be placed for longer than patience.
func New(patience muster.Duration) *Queue {
	return &Queue{lanes: map[laneKey]*lane{}, lines: map[lineKey]*line{}, shapes: map[string]*Shape{}, patience: patience}
}

// Add puts an item into the queue.
func (q *Queue) Add(it *Item, priority int, p *Project, sh *Shape) {
	key := laneKey{lineKey{priority, p}, sh}
	l := q.lanes[key]
	if l == nil {
		l = &lane{key: key, line: q.line(key.lineKey)}
		l.line.all++
		q.lanes[key] = l
		q.use(sh)
	}
	it.lane = l
	l.items.Push(it)
	switch {
	case l.parked:
	case l.pos == 0:
		l.line.lanes.Push(l)
	default:
		l.line.lanes.Fix(l)
	}
}

// Remove takes a queued item out.
func (q *Queue) Remove(it *Item) {
	l := it.lane
	it.lane = nil
	l.items.Remove(it)
	q.reorder(l)
}

// Renumber gives a queued item another number.
func (q *Queue) Renumber(it *Item, num int) {
	it.Num = num
	it.lane.items.Fix(it)
	q.reorder(it.lane)
}

// Each calls f for every item, in no order. It is meant for checks.
func (q *Queue) Each(f func(priority int, p *Project, it *Item)) {
	for key, l := range q.lanes {
		for _, it := range l.items {
			f(key.priority, key.project, it)
		}
	}
}

// reorder corrects the place of a lane in its line after its first item changed,
// and drops the lane if it is empty.
func (q *Queue) reorder(l *lane) {
	if len(l.items) > 0 {
		if !l.parked {
			l.line.lanes.Fix(l)
		}
		return
	}
	q.calm(l)
	if l.parked {
		q.unpark(l)
	} else {
		l.line.lanes.Remove(l)
	}
	delete(q.lanes, l.key)
	l.line.all--
	if l.line.all == 0 {
		delete(q.lines, l.line.key)
		q.levels[l.key.priority] = without(q.levels[l.key.priority], l.line)
	}
	q.leave(l.key.shape)
}

func (q *Queue) line(key lineKey) *line {
	l := q.lines[key]
	if l == nil {
		l = &line{key: key}
		q.lines[key] = l
		q.levels[key.priority] = append(q.levels[key.priority], l)
	}
	return l
}

// park sets a lane aside until a worker changes to fit its shape.
func (q *Queue) park(l *lane) {
	l.line.lanes.Remove(l)
	l.parked = true
	sh := l.key.shape
	if len(sh.parked) == 0 {
		q.parked = append(q.parked, sh)
	}
	sh.parked = append(sh.parked, l)
}

// unpark takes a lane out of its shape's list.
func (q *Queue) unpark(l *lane) {
	sh := l.key.shape
	l.parked = false
	sh.parked = without(sh.parked, l)
	if len(sh.parked) == 0 {
		q.parked = without(q.parked, sh)
	}
}

// Known returns the shape for a need if one is remembered, else nil.
func (q *Queue) Known(n *place.Need) *Shape { return q.shapes[n.Key()] }

// Shape returns the shape for a need. It is right until the shape is Forgotten.
func (q *Queue) Shape(n *place.Need) *Shape {
	sh := q.shapes[n.Key()]
	if sh == nil {
		sh = &Shape{Need: n}
		q.shapes[n.Key()] = sh
		q.rest(sh)
	}
	return sh
}

// use counts one more lane of a shape.
func (q *Queue) use(sh *Shape) {
	if sh.lanes == 0 {
		q.idle = without(q.idle, sh)
	}
	sh.lanes++
}

// leave counts one lane less of a shape.
func (q *Queue) leave(sh *Shape) {
	sh.lanes--
	if sh.lanes == 0 {
		q.rest(sh)
	}
}

// rest lists a shape that has no lane, and forgets the one that had none for
// longest.
func (q *Queue) rest(sh *Shape) {
	q.idle = append(q.idle, sh)
	if len(q.idle) > idleShapes {
		q.idle[0].forgotten = true
		delete(q.shapes, q.idle[0].Need.Key())
		q.idle = append(q.idle[:0], q.idle[1:]...)
	}
}

// without returns the list with x taken out, in place and in order.
func without[T comparable](list []T, x T) []T {
	for i, y := range list {
		if y == x {
			copy(list[i:], list[i+1:])
			var none T
			list[len(list)-1] = none
			return list[:len(list)-1]
		}
	}
	return list
}
