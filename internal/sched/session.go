package sched

import (
	"reflect"
	"slices"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/place"
	"github.com/muster-dev/muster/internal/sched/effect"
	"github.com/muster-dev/muster/internal/sched/event"
	"github.com/muster-dev/muster/internal/sched/judge"
)

// worker returns a known worker, or a NotFound error.
func (s *State) worker(id muster.WorkerID) (*worker, error) {
	if i, ok := s.find(id); ok {
		return s.order[i], nil
	}
	return nil, muster.Errorf(muster.NotFound, "there is no worker %q", id)
}

func (s *State) join(now muster.Time, ev event.Joined) error {
	if err := place.Valid(&ev.Worker); err != nil {
		return err
	}
	i, known := s.find(ev.Worker.ID)
	if !known {
		w := newWorker(muster.Worker{ID: ev.Worker.ID, JoinedAt: now})
		s.order = slices.Insert(s.order, i, w)
		s.out.gone = slices.DeleteFunc(s.out.gone, func(id muster.WorkerID) bool { return id == ev.Worker.ID })
	}
	w := s.order[i]
	s.describe(w, ev.Worker)
	w.connected, w.heard, w.leaving, w.constrained, w.load = true, true, false, "", nil
	w.seen, w.joined = now, now
	s.changedWorker(w)
	s.review(now, w)
	s.armWorker(w)

	held := set(ev.Held)
	for _, t := range w.tasks() {
		switch _, has := held[t.attempt()]; {
		case !has:
			s.miss(now, t)
		case t.row.State == muster.Cancelling || t.room != muster.NoReason:
			t.accepted = true
			s.stop(now, t)
		default:
			t.accepted = true
		}
	}
	for _, t := range w.held {
		s.armTask(t)
	}
	if len(w.held) == 0 {
		s.emptied(w)
	}
	return nil
}

// describe takes over what a worker says about itself, and opens its account
// anew with what it holds.
func (s *State) describe(w *worker, row muster.Worker) {
	if !w.gone {
		s.fleet.Offer(&w.row.Resources, -1)
	}
	for _, t := range w.held {
		t.group.job.project.Holds.Grant(t.row.Grant, &w.row.Resources, -1)
	}
	row.Paused, row.Draining, row.Deadline, row.JoinedAt, row.State = w.row.Paused, w.row.Draining, w.row.Deadline, w.row.JoinedAt, w.row.State
	row.Free, row.Load, row.Running, row.LastSeenAt = nil, nil, 0, 0
	w.row = row
	w.Book = place.NewBook(&w.row)
	for _, t := range w.held {
		w.Book.Take(t.row.Grant)
		t.group.job.project.Holds.Grant(t.row.Grant, &w.row.Resources, 1)
	}
	w.gone, w.shrunk = false, w.Book.Over()
	s.fleet.Offer(&w.row.Resources, 1)
	s.queue.Reopened(&w.Worker)
}

// offered takes over what a connected worker says about itself. What it holds goes
// on, also on a GPU that nobody is given any more.
func (s *State) offered(now muster.Time, ev event.Offered) error {
	w, err := s.worker(ev.Worker)
	if err != nil {
		return err
	}
	row := w.row
	row.Tags, row.Kinds, row.OwnKinds, row.Resources, row.Allow = ev.Tags, ev.Kinds, ev.OwnKinds, ev.Resources, ev.Allow
	if err := place.Valid(&row); err != nil {
		return err
	}
	if !w.connected {
		return notConnected(w)
	}
	s.hear(now, w)
	if reflect.DeepEqual(&row, &w.row) {
		return nil // it was said in a session before
	}
	s.describe(w, row)
	s.changedWorker(w)
	if !s.review(now, w) {
		s.publishWorker(now, w)
	}
	return nil
}

// review derives the worker's state after anything that it depends on changed, and
// reports whether the state did.
func (s *State) review(now muster.Time, w *worker) bool {
	state, closed := muster.WorkerActive, ""
	switch {
	case w.gone:
		state, closed = muster.WorkerGone, "has left"
	case !w.reachable():
		state, closed = muster.WorkerUnreachable, "is unreachable"
	case w.row.Draining:
		state, closed = muster.WorkerDraining, "is draining"
	case w.row.Paused:
		state, closed = muster.WorkerPaused, "is paused"
	case w.constrained != "":
		closed = "takes no tasks now: " + w.constrained
	}
	w.Book.Opens = state == muster.WorkerActive && closed != ""
	if closed != w.Book.Closed {
		w.Book.Closed = closed
		s.queue.Reopened(&w.Worker)
	}
	if state == w.row.State {
		return false
	}
	w.row.State = state
	s.changedWorker(w)
	s.publishWorker(now, w)
	return true
}

// hear notes a sign of life of a worker.
func (s *State) hear(now muster.Time, w *worker) {
	if !w.connected {
		return
	}
	w.seen = now
	if w.heard {
		return
	}
	w.heard = true
	s.review(now, w)
	for _, t := range w.held {
		s.armTask(t)
	}
	s.armWorker(w)
}

// away notes that a worker is not there: its leases run from the last time it
// was heard.
func (s *State) away(now muster.Time, w *worker) {
	w.heard = false
	s.review(now, w)
	for _, t := range w.held {
		s.armTask(t)
	}
	s.armWorker(w)
}

// goes notes that a worker is no part of the fleet any more.
func (s *State) goes(now muster.Time, w *worker) {
	if !w.gone {
		w.gone = true
		s.fleet.Offer(&w.row.Resources, -1)
	}
	s.review(now, w)
}

// emptied notes that a worker holds nothing any more.
func (s *State) emptied(w *worker) {
	switch {
	case w.gone:
	case !w.reachable():
		s.armWorker(w)
	case w.row.Draining && !w.leaving:
		w.leaving = true
		s.tell(w, effect.Leave{Worker: w.row.ID})
	}
}

func (s *State) ready(now muster.Time, ev event.Ready) error {
	w, err := s.worker(ev.Worker)
	if err != nil {
		return err
	}
	if !w.connected {
		return notConnected(w)
	}
	s.hear(now, w)
	if w.constrained == ev.Constrained {
		return nil
	}
	w.constrained = ev.Constrained
	if !s.review(now, w) {
		s.publishWorker(now, w)
	}
	return nil
}

func notConnected(w *worker) error {
	return muster.Errorf(muster.Conflict, "worker %s has no session: it must join first", w.row.ID)
}

func (s *State) lost(now muster.Time, ev event.Lost) error {
	w, err := s.worker(ev.Worker)
	if err != nil {
		return err
	}
	if !w.connected {
		return notConnected(w)
	}
	w.connected = false
	s.away(now, w)
	return nil
}

func (s *State) left(now muster.Time, ev event.Left) error {
	w, err := s.worker(ev.Worker)
	if err != nil {
		return err
	}
	if w.gone {
		return notConnected(w)
	}
	w.connected, w.heard, w.seen = false, false, now
	if w.row.Draining { // it was obeyed: when the worker comes back, it is meant to work
		w.row.Draining, w.row.Deadline, w.clearing = false, 0, false
	}
	s.changedWorker(w)
	s.goes(now, w)
	for _, t := range w.tasks() {
		s.end(now, t, judge.Ending{
			Outcome: muster.AttemptLost, Reason: muster.WorkerShutdown, At: now, Message: "worker " + w.row.Name + " was shut down",
		})
	}
	s.armWorker(w)
	return nil
}

func (s *State) renew(now muster.Time, ev event.Renewed) error {
	w, err := s.worker(ev.Worker)
	if err != nil {
		return err
	}
	if !w.connected {
		return notConnected(w)
	}
	s.hear(now, w)
	w.load = ev.Load
	held := set(ev.Held)
	for _, t := range w.tasks() {
		if _, has := held[t.attempt()]; has {
			t.accepted = true
		} else if max(t.row.AssignedAt, w.joined).Add(s.cfg.Settle) < now {
			s.miss(now, t)
		}
	}
	_, stop := s.Keep(w.row.ID, ev.Held)
	for _, a := range stop {
		s.tell(w, effect.Stop{Worker: w.row.ID, Attempt: a, Outcome: muster.AttemptLost, Reason: muster.WorkerLost})
	}
	return nil
}

// Keep divides the attempts that a worker holds into those that are its own and
// current, and those that it must stop and forget. Ask it right after Joined.
func (s *State) Keep(w muster.WorkerID, held []muster.AttemptID) (keep, stop []muster.AttemptID) {
	for _, a := range held {
		if _, err := s.current(w, a); err != nil {
			stop = append(stop, a)
		} else {
			keep = append(keep, a)
		}
	}
	return keep, stop
}

func set(list []muster.AttemptID) map[muster.AttemptID]struct{} {
	m := make(map[muster.AttemptID]struct{}, len(list))
	for _, a := range list {
		m[a] = struct{}{}
	}
	return m
}
