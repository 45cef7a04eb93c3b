package queue

import (
	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sched/heap"
)

// Outcome is what came of trying an item.
type Outcome int

// The outcomes of a try.
const (
	Placed  Outcome = iota // it, or its first task, is placed: it was removed or renumbered
	Blocked                // no worker fits its shape
	Aside                  // a worker fits, but not this task: leave it out of this Place
)

// exile is an item that is left out of a Place, and where it belongs.
type exile struct {
	item *Item
	key  laneKey
}

// Place asks try to place items until none is left that might be: for each
// priority from the highest, always of the project with the least dominant share
// of all, its oldest. try may place or block, but must not add items.
func (q *Queue) Place(all *Amounts, try func(*Item) Outcome) {
	q.unparkFitting()
	for priority := muster.MaxPriority; priority >= muster.MinPriority; priority-- {
		if len(q.levels[priority]) > 0 {
			q.placeLevel(q.levels[priority], all, try)
		}
	}
	for _, a := range q.aside {
		q.Add(a.item, a.key.priority, a.key.project, a.key.shape)
	}
	clear(q.aside)
	q.aside = q.aside[:0]
}

// unparkFitting brings back the lanes of shapes that a worker fits by now.
func (q *Queue) unparkFitting() {
	still := q.parked[:0]
	for _, sh := range q.parked {
		if !q.refresh(sh) {
			still = append(still, sh)
			continue
		}
		for _, l := range sh.parked {
			l.parked = false
			l.line.lanes.Push(l)
		}
		clear(sh.parked)
		sh.parked = sh.parked[:0]
	}
	clear(q.parked[len(still):])
	q.parked = still
}

func (q *Queue) placeLevel(lines []*line, all *Amounts, try func(*Item) Outcome) {
	var turn heap.Heap[*line]
	for _, l := range lines {
		if len(l.lanes) > 0 {
			l.share = l.key.project.Holds.Share(all)
			turn.Push(l)
		}
	}
	for len(turn) > 0 {
		l := turn[0]
		ln := l.lanes[0]
		it := ln.items[0]
		switch try(it) {
		case Placed:
		case Blocked:
			q.park(ln)
		case Aside:
			q.aside = append(q.aside, exile{it, ln.key})
			q.Remove(it)
		}
		if len(l.lanes) == 0 {
			turn.Remove(l)
			continue
		}
		l.share = l.key.project.Holds.Share(all)
		turn.Fix(l)
	}
}
