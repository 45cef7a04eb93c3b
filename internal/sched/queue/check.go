package queue

import (
	"slices"

	"github.com/muster-dev/muster"
)

func broken(format string, args ...any) error {
	return muster.Errorf(muster.Internal, "the queue is broken: "+format, args...)
}

// Check returns an Internal error that names the first broken invariant, or nil;
// workers is how many there should be.
func (q *Queue) Check(workers int) error {
	if err := q.loadChanges.check(workers); err != nil {
		return err
	}
	if err := q.specChanges.check(workers); err != nil {
		return err
	}
	if err := q.checkReserved(); err != nil {
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
		return broken("%d lines are known, %d have lanes; %d items are set aside", len(q.projectQueues), len(buckets), len(q.skipped))
	}
	for l, n := range buckets {
		if l.total != n || !slices.Contains(q.byPriority[l.key.priority], l) {
			return broken("a line of project %q counts %d lanes, has %d", l.key.project.Name, l.total, n)
		}
	}
	return nil
}

func (q *Queue) checkBucket(key bucketKey, l *bucket) error {
	sh := key.shape
	if key != l.key || len(l.items) == 0 || q.projectQueues[key.projectKey] != l.projectQueue || q.shapes[sh.Need.Key()] != sh || sh.evicted {
		return broken("a lane of priority %d is filed wrongly, or empty", key.priority)
	}
	if l.parked != slices.Contains(sh.parked, l) || l.parked == (l.pos > 0) {
		return broken("a lane is parked: %t, and in its line: %t", l.parked, l.pos > 0)
	}
	for i, it := range l.items {
		if it.pos != i+1 || it.bucket != l || i > 0 && it.Before(l.items[(i-1)/2]) {
			return broken("a lane is out of order at place %d", i)
		}
	}
	return nil
}

// checkReserved holds that every lane that is blocked has its clock, and that each
// reservation is known to both sides, can bear fruit, and is not one too many.
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
			return broken("a lane of priority %d is parked, and its patience is not measured", l.key.priority)
		case (l.blockedSince > 0) != (l.timer.pos > 0 || l.starving):
			return broken("a lane of priority %d is blocked since %d; its clock runs: %t, it starves: %t", l.key.priority, l.blockedSince, l.timer.pos > 0, l.starving)
		case l.starving != slices.Contains(q.starving, l):
			return broken("a lane of priority %d is filed wrongly among the starving", l.key.priority)
		}
		if len(l.reserved) > 0 {
			served++
		}
		reserved += len(l.reserved)
		for _, w := range l.reserved {
			if w.reservedFor != l || !l.starving || !w.feasible(l.key.shape) {
				return broken("worker %s is kept free in vain", w.Usage.Worker.ID)
			}
		}
	}
	for k := q.loadChanges.latest; k != nil; k = k.older {
		w := k.worker
		if w.open {
			open++
		}
		if w.open != (w.Usage.ClosedReason == "") || w.reservedFor != nil && !slices.Contains(w.reservedFor.reserved, w) {
			return broken("worker %s is open: %t, and kept free for a lane that does not know: %t", w.Usage.Worker.ID, w.open, w.reservedFor != nil)
		}
	}
	if timers != len(q.timers) || starving != len(q.starving) || reserved != q.reserved || open != q.openWorkers {
		return broken("%d clocks, %d starving lanes, %d reservations and %d open workers are counted wrongly", timers, starving, reserved, open)
	}
	if !q.reviewNeeded && served > 1 && reserved > q.maxReserved() {
		return broken("%d workers are kept free, %d are open", reserved, open)
	}
	return nil
}
