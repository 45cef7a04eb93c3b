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
	if err := q.loads.check(workers); err != nil {
		return err
	}
	if err := q.terms.check(workers); err != nil {
		return err
	}
	if err := q.checkReserved(); err != nil {
		return err
	}
	lanes := map[*line]int{}
	for key, l := range q.lanes {
		if err := q.checkLane(key, l); err != nil {
			return err
		}
		lanes[l.line]++
	}
	if len(lanes) != len(q.lines) || len(q.aside) > 0 {
		return broken("%d lines are known, %d have lanes; %d items are set aside", len(q.lines), len(lanes), len(q.aside))
	}
	for l, n := range lanes {
		if l.all != n || !slices.Contains(q.levels[l.key.priority], l) {
			return broken("a line of project %q counts %d lanes, has %d", l.key.project.Name, l.all, n)
		}
	}
	return nil
}

func (q *Queue) checkLane(key laneKey, l *lane) error {
	sh := key.shape
	if key != l.key || len(l.items) == 0 || q.lines[key.lineKey] != l.line || q.shapes[sh.Need.Key()] != sh || sh.forgotten {
		return broken("a lane of priority %d is filed wrongly, or empty", key.priority)
	}
	if l.parked != slices.Contains(sh.parked, l) || l.parked == (l.pos > 0) {
		return broken("a lane is parked: %t, and in its line: %t", l.parked, l.pos > 0)
	}
	for i, it := range l.items {
		if it.pos != i+1 || it.lane != l || i > 0 && it.Before(l.items[(i-1)/2]) {
			return broken("a lane is out of order at place %d", i)
		}
	}
	return nil
}

// checkReserved holds that every lane that is blocked has its clock, and that each
// reservation is known to both sides, can bear fruit, and is not one too many.
func (q *Queue) checkReserved() error {
	clocks, starving, reserved, served, open := 0, 0, 0, 0, 0
	for _, l := range q.lanes {
		if l.clock.pos > 0 {
			clocks++
		}
		if l.starving {
			starving++
		}
		switch {
		case l.parked && l.since == 0:
			return broken("a lane of priority %d is parked, and its patience is not measured", l.key.priority)
		case (l.since > 0) != (l.clock.pos > 0 || l.starving):
			return broken("a lane of priority %d is blocked since %d; its clock runs: %t, it starves: %t", l.key.priority, l.since, l.clock.pos > 0, l.starving)
		case l.starving != slices.Contains(q.starving, l):
			return broken("a lane of priority %d is filed wrongly among the starving", l.key.priority)
		}
		if len(l.kept) > 0 {
			served++
		}
		reserved += len(l.kept)
		for _, w := range l.kept {
			if w.kept != l || !l.starving || !w.could(l.key.shape) {
				return broken("worker %s is kept free in vain", w.Book.Worker.ID)
			}
		}
	}
	for k := q.loads.latest; k != nil; k = k.older {
		w := k.worker
		if w.open {
			open++
		}
		if w.open != (w.Book.Closed == "") || w.kept != nil && !slices.Contains(w.kept.kept, w) {
			return broken("worker %s is open: %t, and kept free for a lane that does not know: %t", w.Book.Worker.ID, w.open, w.kept != nil)
		}
	}
	if clocks != len(q.clocks) || starving != len(q.starving) || reserved != q.reserved || open != q.open {
		return broken("%d clocks, %d starving lanes, %d reservations and %d open workers are counted wrongly", clocks, starving, reserved, open)
	}
	if !q.stale && served > 1 && reserved > q.mostReserved() {
		return broken("%d workers are kept free, %d are open", reserved, open)
	}
	return nil
}
