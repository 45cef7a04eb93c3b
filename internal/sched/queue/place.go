package queue

import (
	"slices"

	"github.com/muster-dev/muster"
)

// Outcome is the result of trying an item.
type Outcome int

// The outcomes of a try.
const (
	Placed  Outcome = iota // it, or its first task, was placed: it was removed or renumbered
	Blocked                // no worker fits its shape
	Skipped                // only avoided workers fit, or its stage runs as many tasks as it may: leave it out of this Place
)

// skippedItem is an item that is left out of a Place, and its bucket.
type skippedItem struct {
	item *Item
	key  bucketKey
}

// Place calls try until no item is left that might be placeable. From the highest
// priority down, it takes the project with the least dominant share of total and tries
// its oldest item. try must not add items. Before that, Place reviews the reservations.
func (q *Queue) Place(now muster.Time, total *ResourceVector, try func(*Item) Outcome) {
	q.reviewReservations(now)
	for again := true; again; again = q.released {
		q.released = false
		q.unparkFitting(now)
		for priority := muster.MaxPriority; priority >= muster.MinPriority && !q.released; priority-- {
			if len(q.byPriority[priority]) > 0 {
				q.placePriority(now, q.byPriority[priority], total, try)
			}
		}
	}
	for _, a := range q.skipped {
		q.Add(a.item, a.key.priority, a.key.project, a.key.shape)
	}
	clear(q.skipped)
	q.skipped = q.skipped[:0]
}

// unparkFitting unparks the buckets that may have a worker that fits by now.
func (q *Queue) unparkFitting(now muster.Time) {
	remaining := q.parked[:0]
	for _, sh := range q.parked {
		stillParked := sh.parked[:0]
		if !q.refresh(sh) {
			stillParked = q.keepParked(now, sh)
		}
		for _, l := range sh.parked[len(stillParked):] {
			l.parked = false
			l.projectQueue.buckets.Push(l)
		}
		clear(sh.parked[len(stillParked):])
		sh.parked = stillParked
		if len(stillParked) > 0 {
			remaining = append(remaining, sh)
		}
	}
	clear(q.parked[len(remaining):])
	q.parked = remaining
}

// keepParked moves the parked buckets that may use none of the reserved workers to the
// front, in order, and returns them.
func (q *Queue) keepParked(now muster.Time, sh *Shape) []*bucket {
	if len(sh.reserved) == 0 && (sh.Need.Gang == 0 || q.reserved == 0) {
		return sh.parked
	}
	n := 0
	for i, l := range sh.parked {
		if allowed := q.canPackGang(now, l) || slices.ContainsFunc(sh.reserved, func(f fit) bool { return q.mayUse(now, l, f.worker) }); !allowed {
			copy(sh.parked[n+1:i+1], sh.parked[n:i])
			sh.parked[n] = l
			n++
		}
	}
	return sh.parked[:n]
}

// placePriority places items of one priority, until none is left that might be
// placeable or a reservation ended.
func (q *Queue) placePriority(now muster.Time, queues []*projectQueue, total *ResourceVector, try func(*Item) Outcome) {
	var order Heap[*projectQueue]
	for _, l := range queues {
		if len(l.buckets) > 0 {
			l.share = l.key.project.Usage.DominantShare(total)
			order.Push(l)
		}
	}
	for len(order) > 0 && !q.released {
		l := order[0]
		ln := l.buckets[0]
		it := ln.items[0]
		switch try(it) {
		case Placed:
			q.clearStarvation(ln)
		case Blocked:
			q.park(ln)
			q.markBlocked(now, ln)
		case Skipped:
			q.skipped = append(q.skipped, skippedItem{it, ln.key})
			q.Remove(it)
		}
		if len(l.buckets) == 0 {
			order.Remove(l)
			continue
		}
		l.share = l.key.project.Usage.DominantShare(total)
		order.Fix(l)
	}
}
