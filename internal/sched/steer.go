package sched

import (
	"slices"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/place"
	"github.com/muster-dev/muster/internal/sched/effect"
	"github.com/muster-dev/muster/internal/sched/event"
	"github.com/muster-dev/muster/internal/sched/judge"
)

func (s *State) pause(now muster.Time, ev event.Pause) error {
	w, err := s.worker(ev.Worker)
	if err != nil {
		return err
	}
	switch r := &w.row; {
	case !r.Draining:
		s.steer(now, w, ev.On, false, ev.Until)
	case ev.Until > 0:
		return muster.Errorf(muster.Conflict, "worker %s is draining and takes nothing new anyway: resume it before you pause it for a while", r.Name)
	default:
		s.steer(now, w, ev.On, true, r.Deadline)
	}
	return nil
}

func (s *State) drain(now muster.Time, ev event.Drain) error {
	w, err := s.worker(ev.Worker)
	if err != nil {
		return err
	}
	switch r := &w.row; {
	case ev.On:
		s.steer(now, w, r.Paused && (r.Draining || r.Deadline == 0), true, ev.Until)
	case r.Draining:
		s.steer(now, w, r.Paused, false, 0)
	}
	return nil
}

// steer sets what an administrator wants of a worker.
func (s *State) steer(now muster.Time, w *worker, paused, draining bool, deadline muster.Time) {
	r := &w.row
	if r.Paused == paused && r.Draining == draining && r.Deadline == deadline {
		return
	}
	w.leaving = w.leaving && draining
	w.clearing = false
	r.Paused, r.Draining, r.Deadline = paused, draining, deadline
	s.changedWorker(w)
	if !s.review(now, w) {
		s.publishWorker(now, w)
	}
	s.armWorker(w)
	if len(w.held) == 0 {
		s.emptied(w)
	}
}

// deadline does what an administrator wanted at the worker's deadline: a pause
// ends; what a draining worker still holds has to make room.
func (s *State) deadline(now muster.Time, w *worker) {
	if !w.row.Draining {
		s.steer(now, w, false, false, 0)
		return
	}
	w.clearing = true
	for _, t := range w.tasks() {
		s.vacate(now, t, muster.Preempted)
	}
}

// vacate tells a held task, and all of its gang, to make room, and why: it is tried
// again, and that costs it nothing.
func (s *State) vacate(now muster.Time, t *task, why muster.Reason) {
	if !t.group.gang() {
		s.oust(now, t, why)
		return
	}
	for _, m := range t.group.elements() {
		s.oust(now, m, why)
	}
}

// oust tells a held task to make room. What is being cancelled ends anyway.
func (s *State) oust(now muster.Time, t *task, why muster.Reason) {
	if t.worker != nil && t.row.State != muster.Cancelling && t.room == muster.NoReason {
		t.room = why
		s.stop(now, t)
	}
}

// stop tells a worker, again after it was away, to end an attempt, and gives it
// the time that this may take.
func (s *State) stop(now muster.Time, t *task) {
	t.stopBy = now.Add(t.patience())
	s.armTask(t)
	why := t.room
	if t.row.State == muster.Cancelling {
		why = muster.CancelledByUser
	}
	s.tell(t.worker, effect.Stop{Worker: t.row.Worker, Attempt: t.attempt(), Outcome: muster.AttemptCancelled, Reason: why})
}

// patience is how long a task that was told to end may take until its report is
// here. One that makes room has the time to save, and its worker to bring that here.
func (t *task) patience() muster.Duration {
	spec := t.group.spec()
	d := spec.Kill.Grace.Or(defaultGrace) + cancelSlack
	if c := spec.Checkpoint; c != nil && t.room == muster.Preempted && t.row.State != muster.Cancelling {
		d = c.Grace.Or(spec.Kill.Grace.Or(defaultGrace)) + saveSlack
	}
	return d
}

func (s *State) heal(ev event.Heal) error {
	w, err := s.worker(ev.Worker)
	if err != nil {
		return err
	}
	if !w.reachable() {
		return muster.Errorf(muster.Conflict, "worker %s is %s: its GPUs can be looked at when it is back", w.row.Name, w.row.State)
	}
	gpus, err := place.Quarantined(&w.row, ev.GPUs)
	if err == nil {
		s.tell(w, effect.Heal{Worker: w.row.ID, GPUs: gpus})
	}
	return err
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
	s.timers.Arm(&w.timer, 0)
	i, _ := s.find(w.row.ID)
	s.order = slices.Delete(s.order, i, i+1)
	s.out.forget(w)
	return nil
}

// mostTasks is how many of the tasks that a worker holds are listed.
const mostTasks = 100

// Workers returns all workers by id, with what only memory knows: free
// resources, tasks that each holds, load, why it takes nothing, and when it was
// last heard.
func (s *State) Workers() []muster.Worker {
	list := make([]muster.Worker, len(s.order))
	for i, w := range s.order {
		row := w.row
		free := w.Book.Free()
		row.Free, row.Running, row.Load, row.LastSeenAt = &free, len(w.held), w.load, w.seen
		if w.reachable() {
			row.Constrained = w.constrained
		}
		row.Tasks = make([]muster.TaskID, min(len(w.held), mostTasks))
		for i := range row.Tasks {
			row.Tasks[i] = w.held[i].row.ID
		}
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
	last := &j.groups[len(j.groups)-1].row
	spans, err := event.Within(ev.Tasks, last.First+last.Size-1)
	if err != nil {
		return muster.Errorf(muster.NotFound, "job %s %w", ev.Job, err)
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

// cancelPart cancels elements of a group and returns how many were not final and
// not being cancelled already. If they include all of the rest, that goes in one
// step. To cancel a part of a gang is to cancel it.
func (s *State) cancelPart(now muster.Time, g *group, first, last int) int {
	n := 0
	if g.gang() {
		first, last = 0, g.row.Size-1
		defer s.armGroup(g)
		if g.item.Queued() && g.rest() == 0 {
			s.queue.Remove(&g.item)
		}
	}
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
		if t.done() {
			t.row.Reason, t.row.FinishedAt = muster.CancelledByUser, now
			s.set(now, t, muster.Cancelled)
			return true
		}
		t.row.Reason = muster.CancelledByUser
		s.set(now, t, muster.Cancelling)
		s.stop(now, t)
		return true
	default:
		return false
	}
}
