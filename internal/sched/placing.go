package sched

import (
	"github.com/muster-dev/muster"
)

// Place assigns what can be assigned: for each priority from the highest, always
// to the project with the least dominant share, its oldest task whose need a
// worker can meet now. Call it once after a batch of events.
func (s *State) Place(now muster.Time) {
	s.unparkFitting()
	for priority := muster.MaxPriority; priority >= muster.MinPriority; priority-- {
		if len(s.queue.levels[priority]) > 0 {
			s.placeLevel(now, s.queue.levels[priority])
		}
	}
	aside := s.queue.aside
	s.queue.aside = s.queue.aside[:0]
	for _, it := range aside {
		s.enqueue(it)
		s.armTask(it.task)
	}
	clear(aside)
	s.settle(now)
}

// unparkFitting brings back the lanes of shapes that a worker fits by now.
func (s *State) unparkFitting() {
	q := &s.queue
	still := q.parked[:0]
	for _, sh := range q.parked {
		if !s.refresh(sh) {
			still = append(still, sh)
			continue
		}
		for _, l := range sh.parked {
			l.parked = false
			l.line.lanes.push(l)
		}
		clear(sh.parked)
		sh.parked = sh.parked[:0]
	}
	clear(q.parked[len(still):])
	q.parked = still
}

func (s *State) placeLevel(now muster.Time, lines []*line) {
	var turn heap[*line]
	for _, l := range lines {
		if len(l.lanes) > 0 {
			l.share = s.share(l.key.project)
			turn.push(l)
		}
	}
	for len(turn) > 0 {
		l := turn[0]
		s.placeOldest(now, l)
		if len(l.lanes) == 0 {
			turn.remove(l)
			continue
		}
		l.share = s.share(l.key.project)
		turn.fix(l)
	}
}

// placeOldest tries the oldest task of the line. It assigns it, or takes it or its lane
// out of the line until something changes.
func (s *State) placeOldest(now muster.Time, l *line) {
	ln := l.lanes[0]
	it := ln.items[0]
	var avoid []avoidance
	if it.task != nil {
		avoid = it.task.avoid
	}
	w, shy := s.best(ln.key.shape, avoid)
	switch {
	case w != nil:
		s.assign(now, it, w)
	case shy:
		s.dequeue(it)
		s.queue.aside = append(s.queue.aside, it)
	default:
		s.queue.park(ln)
	}
}

// assign gives the item's task, or the next element of its group's rest, to w.
func (s *State) assign(now muster.Time, it *item, w *worker) {
	need := it.lane.key.shape.need
	t := it.task
	if t != nil {
		s.dequeue(it)
	} else {
		t = s.single(it.group, it.group.row.Next)
	}
	g := t.group
	grant := w.book.Grant(need)
	t.row.Attempt++
	t.row.Worker, t.row.Grant, t.row.AssignedAt = w.row.ID, &grant, now
	t.row.NotBefore, t.row.Reason, t.row.Message = 0, muster.NoReason, ""
	s.hold(t, w)
	s.set(now, t, muster.Assigned)
	s.tell(w, Assign{
		Worker: w.row.ID, Attempt: t.attempt(), Group: g.row.Index, Element: t.element(), Grant: grant, Spec: g.spec(), Inputs: g.inputs,
	})
}

// hold enters what the task's row grants it of w.
func (s *State) hold(t *task, w *worker) {
	w.book.Take(t.row.Grant)
	s.bump(w)
	t.group.job.project.hold(t.row.Grant, w, 1)
	t.shape = s.shapeOf(t.group)
	t.shape.held++
	t.worker, t.at, t.accepted = w, len(w.held), false
	w.held = append(w.held, t)
}

// release ends what a task holds of its worker.
func (s *State) release(t *task) {
	w := t.worker
	w.book.Return(t.row.Grant)
	w.shrunk = w.shrunk && w.book.Over()
	s.bump(w)
	t.group.job.project.hold(t.row.Grant, w, -1)
	t.shape.held--
	last := len(w.held) - 1
	w.held[t.at] = w.held[last]
	w.held[t.at].at = t.at
	w.held[last] = nil
	w.held = w.held[:last]
	t.worker = nil
	if len(w.held) == 0 {
		s.emptied(w)
	}
}
