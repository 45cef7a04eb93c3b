package queue

import (
	"cmp"
	"slices"

	"github.com/muster-dev/muster"
)

func broken(format string, args ...any) error {
	return muster.Errorf(muster.Internal, "queue is inconsistent: "+format, args...)
}

// Check returns an Internal error that names the first broken invariant, or nil;
// workers is how many there should be.
func (q *Queue) Check(workers int) error {
	if err := cmp.Or(q.loadChanges.check(workers), q.specChanges.check(workers), q.checkReserved()); err != nil {
		return err
	}
	buckets := map[*projectQueue]int{}
	for key, l := range q.buckets {
		if err := q.checkBucket(key, l); err != nil {
			return err
		}
		buckets[l.projectQueue]++
	}
	if len(buckets) != len(q.projectQueues) || len(q.skipped) > 0 {
		return broken("%d project queues are known, %d have buckets; %d items are skipped", len(q.projectQueues), len(buckets), len(q.skipped))
	}
	for l, n := range buckets {
		if l.total != n || !slices.Contains(q.byPriority[l.key.priority], l) {
			return broken("a queue of project %q counts %d buckets, has %d", l.key.project.Name, l.total, n)
		}
	}
	return nil
}

func (q *Queue) checkBucket(key bucketKey, l *bucket) error {
	sh := key.shape
	if key != l.key || len(l.items) == 0 || q.projectQueues[key.projectKey] != l.projectQueue || q.shapes[sh.Need.Key()] != sh || sh.evicted {
		return broken("a bucket of priority %d has a wrong key or is empty", key.priority)
	}
	if l.parked != slices.Contains(sh.parked, l) || l.parked == (l.pos > 0) {
		return broken("a bucket is parked: %t, but in its project queue: %t", l.parked, l.pos > 0)
	}
	for i, it := range l.items {
		if it.pos != i+1 || it.bucket != l || i > 0 && it.Before(l.items[(i-1)/2]) {
			return broken("a bucket is out of order at index %d", i)
		}
	}
	return nil
}

// checkReserved checks that every blocked bucket has a timer, and that reservations are
// consistent on both sides, feasible and not too many.
func (q *Queue) checkReserved() error {
	timers, starving, reserved, served, open := 0, 0, 0, 0, 0
	for _, l := range q.buckets {
		if l.timer.pos > 0 {
			timers++
		}
		if l.starving {
			starving++
		}
		switch {
		case l.parked && l.blockedSince == 0:
			return broken("a bucket of priority %d is parked, but not blocked since a time", l.key.priority)
		case (l.blockedSince > 0) != (l.timer.pos > 0 || l.starving):
			return broken("a bucket of priority %d is blocked since %d; its timer is set: %t, it starves: %t", l.key.priority, l.blockedSince, l.timer.pos > 0, l.starving)
		case l.starving != slices.Contains(q.starving, l):
			return broken("a bucket of priority %d is wrong in the list of starving ones", l.key.priority)
		}
		if len(l.reserved) > 0 {
			served++
		}
		reserved += len(l.reserved)
		for _, w := range l.reserved {
			if w.reservedFor != l || !l.starving || !w.feasible(l.key.shape) {
				return broken("worker %s is reserved for a bucket that cannot use it", w.Usage.Worker.ID)
			}
		}
	}
	for k := q.loadChanges.latest; k != nil; k = k.older {
		w := k.worker
		if w.open {
			open++
		}
		if w.open != (w.Usage.ClosedReason == "") || w.reservedFor != nil && !slices.Contains(w.reservedFor.reserved, w) {
			return broken("worker %s is open: %t, reserved for a bucket that does not refer back: %t", w.Usage.Worker.ID, w.open, w.reservedFor != nil)
		}
	}
	if timers != len(q.timers) || starving != len(q.starving) || reserved != q.reserved || open != q.openWorkers {
		return broken("%d timers, %d starving buckets, %d reservations and %d open workers are counted wrongly", timers, starving, reserved, open)
	}
	if !q.reviewNeeded && served > 1 && reserved > q.maxReserved() {
		return broken("%d workers are reserved, %d are open", reserved, open)
	}
	return nil
}
