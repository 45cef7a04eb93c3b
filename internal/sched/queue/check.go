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
	listed := 0
	for w := q.latest; w != nil; w = w.older {
		listed++
		if w.older != nil && (w.older.newer != w || w.older.changed >= w.changed) {
			return broken("the list of changes is out of order at worker %s", w.Book.Worker.ID)
		}
	}
	if listed != workers || q.workers != workers {
		return broken("%d workers are in the list of changes, %d are counted, %d are known", listed, q.workers, workers)
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
