package sched

import (
	"slices"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/placement"
)

func (s *State) pause(now muster.Time, ev Pause) error {
	w, err := s.worker(ev.Worker)
	if err != nil {
		return err
	}
	if !ev.On {
		w.Health = healthRecord{}
		s.onHealthChange(now, w)
	}
	switch r := &w.Row; {
	case !r.Draining:
		s.setAdminState(now, w, ev.On, false, ev.Until)
	case ev.Until > 0:
		return muster.Errorf(muster.Conflict, "worker %s is draining: resume it before you pause it with a timeout", r.Name)
	default:
		s.setAdminState(now, w, ev.On, true, r.Deadline)
	}
	return nil
}

func (s *State) drain(now muster.Time, ev Drain) error {
	w, err := s.worker(ev.Worker)
	if err != nil {
		return err
	}
	switch r := &w.Row; {
	case ev.On:
		s.setAdminState(now, w, r.Paused && (r.Draining || r.Deadline == 0), true, ev.Until)
	case r.Draining:
		s.setAdminState(now, w, r.Paused, false, 0)
	}
	return nil
}

// setAdminState sets what an administrator asked of a worker.
func (s *State) setAdminState(now muster.Time, w *worker, paused, draining bool, deadline muster.Time) {
	r := &w.Row
	if r.Paused == paused && r.Draining == draining && r.Deadline == deadline {
		return
	}
	w.DrainSent = w.DrainSent && draining
	w.Evicting = false
	r.Paused, r.Draining, r.Deadline = paused, draining, deadline
	s.changedWorker(w)
	if !s.deriveState(now, w) {
		s.publishWorker(now, w)
	}
	s.armWorker(now, w)
	if len(w.Held) == 0 {
		s.onIdle(now, w)
	}
}

// onDeadline handles the worker's deadline: a pause ends; the tasks of a draining
// worker are preempted.
func (s *State) onDeadline(now muster.Time, w *worker) {
	if !w.Row.Draining {
		s.setAdminState(now, w, false, false, 0)
		return
	}
	w.Evicting = true
	for _, t := range w.SortedTasks() {
		s.preemptGroup(now, t, muster.Preempted)
	}
}

// preemptGroup preempts a held task and all of its gang. The tasks are queued again,
// without a counted retry.
func (s *State) preemptGroup(now muster.Time, t *task, reason muster.Reason) {
	if !t.Group.Gang() {
		s.preempt(now, t, reason)
		return
	}
	for _, m := range t.Group.SortedTasks() {
		s.preempt(now, m, reason)
	}
}

// preempt stops a held task unless it is being cancelled or preempted already.
func (s *State) preempt(now muster.Time, t *task, reason muster.Reason) {
	if t.Worker != nil && t.Row.State != muster.Cancelling && t.PreemptReason == muster.NoReason {
		t.PreemptReason = reason
		s.stop(now, t)
	}
}

// stop sends the worker a stop for the current attempt, again after a reconnect, and
// sets the deadline for its report.
func (s *State) stop(now muster.Time, t *task) {
	t.StopBy = now.Add(t.StopTimeout())
	s.armTask(t)
	reason := t.PreemptReason
	if t.Row.State == muster.Cancelling {
		reason = muster.CancelledByUser
	}
	s.send(t.Worker, Stop{Worker: t.Row.Worker, Attempt: t.Attempt(), Outcome: muster.AttemptCancelled, Reason: reason})
}

func (s *State) heal(ev Heal) error {
	w, err := s.worker(ev.Worker)
	if err != nil {
		return err
	}
	if !w.Reachable() {
		return muster.Errorf(muster.Conflict, "worker %s is %s: its GPUs can be checked again when it reconnects", w.Row.Name, w.Row.State)
	}
	gpus, err := placement.Quarantined(&w.Row, ev.GPUs)
	if err == nil {
		s.send(w, HealGPUs{Worker: w.Row.ID, GPUs: gpus})
	}
	return err
}

func (s *State) remove(now muster.Time, ev Remove) error {
	w, err := s.worker(ev.Worker)
	if err != nil {
		return err
	}
	if !w.Gone && w.Reachable() {
		return muster.Errorf(muster.Conflict, "worker %s is %s: drain or stop it before you remove it", w.Row.ID, w.Row.State)
	}
	for _, t := range w.SortedTasks() {
		s.end(now, t, attemptEnd{
			Outcome: muster.AttemptLost, Reason: muster.WorkerLost, At: now, Message: "worker " + w.Row.Name + " was removed",
		})
	}
	w.Connected = false
	s.markGone(now, w)
	s.queue.RemoveWorker(&w.Worker)
	s.limits.Count(&w.Row, -1)
	s.timers.Arm(&w.Timer, 0)
	i, _ := s.find(w.Row.ID)
	s.workers = slices.Delete(s.workers, i, i+1)
	s.out.removeWorker(w)
	return nil
}

// maxListedTasks limits how many of a worker's tasks Workers lists.
const maxListedTasks = 100

// Workers returns all workers by id, with what is kept in memory only: free
// resources, held tasks, load, why it takes no tasks, its health, and when it was
// last seen.
func (s *State) Workers(now muster.Time) []muster.Worker {
	list := make([]muster.Worker, len(s.workers))
	for i, w := range s.workers {
		row := w.Row
		free := w.Usage.Free()
		row.Free, row.Running, row.Load, row.LastSeenAt = &free, len(w.Held), w.Load, w.Seen
		if w.Reachable() {
			row.Constrained = w.Constrained
		}
		row.Health = w.Health.Summary(now)
		row.Tasks = make([]muster.TaskID, min(len(w.Held), maxListedTasks))
		for i := range row.Tasks {
			row.Tasks[i] = w.Held[i].Row.ID
		}
		list[i] = row
	}
	return list
}

func (s *State) cancel(now muster.Time, ev Cancel) error {
	j := s.jobs[ev.Job]
	switch {
	case j == nil && (ev.Job < 1 || ev.Job >= s.nextJob):
		return muster.Errorf(muster.NotFound, "there is no job %s", ev.Job)
	case j == nil:
		return muster.Errorf(muster.Conflict, "job %s has already ended", ev.Job)
	}
	last := &j.Groups[len(j.Groups)-1].Row
	spans, err := normalizeSpans(ev.Tasks, last.First+last.Size-1)
	if err != nil {
		return muster.Errorf(muster.NotFound, "job %s %w", ev.Job, err)
	}
	n := 0
	for _, g := range j.Groups {
		for _, span := range spans {
			first, last := max(span.First-g.Row.First, 0), min(span.Last-g.Row.First, g.Row.Size-1)
			if first <= last {
				n += s.cancelRange(now, g, first, last)
			}
		}
	}
	if n == 0 {
		return muster.Errorf(muster.Conflict, "job %s: all of these tasks have already ended or are being cancelled", ev.Job)
	}
	return nil
}

// normalizeSpans merges spans of the tasks 0 to last; nil means all of them. A span
// outside is a NotFound error.
func normalizeSpans(spans []muster.Span, last int) ([]muster.Span, error) {
	if spans == nil {
		return []muster.Span{{First: 0, Last: last}}, nil
	}
	for _, s := range spans {
		if s.First < 0 || s.First > s.Last || s.Last > last {
			return nil, muster.Errorf(muster.NotFound, "has tasks 0 to %d, not %d to %d", last, s.First, s.Last)
		}
	}
	return muster.MergeSpans(spans), nil
}

// cancelRange cancels elements of a group and returns how many it cancelled. If the
// range includes all unmaterialized elements, they are cancelled in one step.
// Cancelling a part of a gang cancels all of it.
func (s *State) cancelRange(now muster.Time, g *group, first, last int) int {
	n := 0
	if g.Gang() {
		first, last = 0, g.Row.Size-1
		defer s.armGroup(g)
		if g.Item.Queued() && g.Unmaterialized() == 0 {
			s.queue.Remove(&g.Item)
		}
	}
	for _, t := range g.SortedTasks() {
		if e := t.Element(); e >= first && e <= last && s.cancelTask(now, t) {
			n++
		}
	}
	rest := g.Unmaterialized()
	if g.Row.UnmaterializedState.Final() || rest == 0 || last < g.Row.Materialized {
		return n
	}
	if first <= g.Row.Materialized && last == g.Row.Size-1 {
		s.transitionRest(now, g, muster.Cancelled, muster.CancelledByUser, "")
		return n + rest
	}
	for e := max(first, g.Row.Materialized); e <= last; e++ {
		if g.Tasks[e] == nil && e >= g.Row.Materialized {
			s.cancelTask(now, s.materialize(g, e))
			n++
		}
	}
	return n
}

func (s *State) cancelTask(now muster.Time, t *task) bool {
	switch t.Row.State {
	case muster.Waiting, muster.Queued:
		if t.Item.Queued() {
			s.queue.Remove(&t.Item)
		}
		t.Row.Reason, t.Row.Message, t.Row.FinishedAt, t.Row.NotBefore = muster.CancelledByUser, "", now, 0
		s.setState(now, t, muster.Cancelled)
		return true
	case muster.Assigned, muster.Running:
		if t.AwaitingGang() {
			t.Row.Reason, t.Row.FinishedAt = muster.CancelledByUser, now
			s.setState(now, t, muster.Cancelled)
			return true
		}
		t.Row.Reason = muster.CancelledByUser
		s.setState(now, t, muster.Cancelling)
		s.stop(now, t)
		return true
	default:
		return false
	}
}
