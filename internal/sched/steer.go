package sched

import (
	"slices"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sched/event"
	"github.com/muster-dev/muster/internal/sched/judge"
)

func (s *State) pause(now muster.Time, ev event.Pause) error {
	w, err := s.worker(ev.Worker)
	if err != nil {
		return err
	}
	if w.row.Paused != ev.On {
		w.row.Paused = ev.On
		s.changedWorker(w)
		s.review(now, w)
	}
	return nil
}

func (s *State) drain(now muster.Time, ev event.Drain) error {
	w, err := s.worker(ev.Worker)
	if err != nil {
		return err
	}
	if w.row.Draining == ev.On {
		return nil
	}
	w.row.Draining, w.leaving = ev.On, false
	s.changedWorker(w)
	s.review(now, w)
	if len(w.held) == 0 {
		s.emptied(w)
	}
	return nil
}

func (s *State) remove(now muster.Time, ev event.Remove) error {
	w, err := s.worker(ev.Worker)
	if err != nil {
		return err
	}
	if !w.gone && w.reachable() {
		return muster.Errorf(muster.Conflict, "worker %s is %s: drain it, or stop it, before it is removed", w.row.ID, w.row.State)
	}
	for _, t := range w.tasks() {
		s.end(now, t, judge.Ending{
			Outcome: muster.AttemptLost, Reason: muster.WorkerLost, At: now, Message: "worker " + w.row.Name + " was removed",
		})
	}
	w.connected = false
	s.goes(now, w)
	s.queue.Forget(&w.Worker)
	s.arm(&w.timer, 0)
	i, _ := s.find(w.row.ID)
	s.order = slices.Delete(s.order, i, i+1)
	s.out.forget(w)
	return nil
}

// Workers returns all workers by id, with what only memory knows: free
// resources, how many tasks each holds, load, and when it was last heard.
func (s *State) Workers() []muster.Worker {
	list := make([]muster.Worker, len(s.order))
	for i, w := range s.order {
		row := w.row
		free := w.Book.Free()
		row.Free, row.Running, row.Load, row.LastSeenAt = &free, len(w.held), w.load, w.seen
		list[i] = row
	}
	return list
}

func (s *State) cancel(now muster.Time, ev event.Cancel) error {
	j := s.jobs[ev.Job]
	switch {
	case j == nil && (ev.Job < 1 || ev.Job >= s.next):
		return muster.Errorf(muster.NotFound, "there is no job %s", ev.Job)
	case j == nil:
		return muster.Errorf(muster.Conflict, "job %s has already ended", ev.Job)
	}
	spans, err := j.spans(ev.Tasks)
	if err != nil {
		return err
	}
	n := 0
	for _, g := range j.groups {
		for _, span := range spans {
			first, last := max(span.First-g.row.First, 0), min(span.Last-g.row.First, g.row.Size-1)
			if first <= last {
				n += s.cancelPart(now, g, first, last)
			}
		}
	}
	if n == 0 {
		return muster.Errorf(muster.Conflict, "job %s: all of these tasks have ended already, or are being cancelled", ev.Job)
	}
	return nil
}

// spans returns the spans in order and without overlaps; all tasks for nil.
func (j *job) spans(list []event.Span) ([]event.Span, error) {
	last := j.groups[len(j.groups)-1].row
	most := last.First + last.Size - 1
	if list == nil {
		return []event.Span{{First: 0, Last: most}}, nil
	}
	for _, s := range list {
		if s.First < 0 || s.First > s.Last || s.Last > most {
			return nil, muster.Errorf(muster.NotFound, "job %s has tasks 0 to %d, not %d to %d", j.row.ID, most, s.First, s.Last)
		}
	}
	return event.Merge(list), nil
}

// cancelPart cancels elements of a group and returns how many were not final and
// not being cancelled already. If they include all of the rest, that goes in one
// step.
func (s *State) cancelPart(now muster.Time, g *group, first, last int) int {
	n := 0
	for _, t := range g.elements() {
		if e := t.element(); e >= first && e <= last && s.cancelTask(now, t) {
			n++
		}
	}
	rest := g.rest()
	if g.row.Rest.Final() || rest == 0 || last < g.row.Next {
		return n
	}
	if first <= g.row.Next && last == g.row.Size-1 {
		s.moveRest(now, g, muster.Cancelled, muster.CancelledByUser, "")
		return n + rest
	}
	for e := max(first, g.row.Next); e <= last; e++ {
		if g.tasks[e] == nil && e >= g.row.Next {
			s.cancelTask(now, s.single(g, e))
			n++
		}
	}
	return n
}

func (s *State) cancelTask(now muster.Time, t *task) bool {
	switch t.row.State {
	case muster.Waiting, muster.Queued:
		if t.item.Queued() {
			s.queue.Remove(&t.item)
		}
		t.row.Reason, t.row.Message, t.row.FinishedAt, t.row.NotBefore = muster.CancelledByUser, "", now, 0
		s.set(now, t, muster.Cancelled)
		return true
	case muster.Assigned, muster.Running:
		t.row.Reason = muster.CancelledByUser
		t.stopBy = now.Add(orDefault(t.group.spec().Kill.Grace, defaultGrace) + cancelSlack)
		s.set(now, t, muster.Cancelling)
		s.tell(t.worker, stopCancelled(t))
		return true
	default:
		return false
	}
}

func stopCancelled(t *task) Stop {
	return Stop{Worker: t.row.Worker, Attempt: t.attempt(), Outcome: muster.AttemptCancelled, Reason: muster.CancelledByUser}
}
