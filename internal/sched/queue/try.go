package queue

import (
	"slices"

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
// of all, its oldest. try may place or block, but must not add items. Before that
// it keeps workers free for those who have waited in vain for too long.
func (q *Queue) Place(now muster.Time, all *Amounts, try func(*Item) Outcome) {
	q.review(now)
	for again := true; again; again = q.released {
		q.released = false
		q.unparkFitting(now)
		for priority := muster.MaxPriority; priority >= muster.MinPriority && !q.released; priority-- {
			if len(q.levels[priority]) > 0 {
				q.placeLevel(now, q.levels[priority], all, try)
			}
		}
	}
	for _, a := range q.aside {
		q.Add(a.item, a.key.priority, a.key.project, a.key.shape)
	}
	clear(q.aside)
	q.aside = q.aside[:0]
}

// unparkFitting brings back the lanes that may have a worker that fits by now.
func (q *Queue) unparkFitting(now muster.Time) {
	still := q.parked[:0]
	for _, sh := range q.parked {
		stay := sh.parked[:0]
		if !q.refresh(sh) {
			stay = q.mayNot(now, sh)
		}
		for _, l := range sh.parked[len(stay):] {
			l.parked = false
			l.line.lanes.Push(l)
		}
		clear(sh.parked[len(stay):])
		sh.parked = stay
		if len(stay) > 0 {
			still = append(still, sh)
		}
	}
	clear(q.parked[len(still):])
	q.parked = still
}

// mayNot moves the parked lanes that may have none of the workers that are kept
// free to the front, in order, and returns them.
func (q *Queue) mayNot(now muster.Time, sh *Shape) []*lane {
	if len(sh.kept) == 0 && (sh.Need.Gang == 0 || q.reserved == 0) {
		return sh.parked
	}
	n := 0
	for i, l := range sh.parked {
		if may := q.mayGather(now, l) || slices.ContainsFunc(sh.kept, func(f fit) bool { return q.may(now, l, f.worker) }); !may {
			copy(sh.parked[n+1:i+1], sh.parked[n:i])
			sh.parked[n] = l
			n++
		}
	}
	return sh.parked[:n]
}

// placeLevel places items of one priority, until none is left that might be, or
// the end of a reservation calls for a new beginning.
func (q *Queue) placeLevel(now muster.Time, lines []*line, all *Amounts, try func(*Item) Outcome) {
	var turn heap.Heap[*line]
	for _, l := range lines {
		if len(l.lanes) > 0 {
			l.share = l.key.project.Holds.Share(all)
			turn.Push(l)
		}
	}
	for len(turn) > 0 && !q.released {
		l := turn[0]
		ln := l.lanes[0]
		it := ln.items[0]
		switch try(it) {
		case Placed:
			q.calm(ln)
		case Blocked:
			q.park(ln)
			q.blocked(now, ln)
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
