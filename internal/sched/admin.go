package sched

import (
	"slices"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/placement"
	"github.com/muster-dev/muster/internal/sched/health"
	"github.com/muster-dev/muster/internal/sched/retry"
)

func (s *State) pause(now muster.Time, ev Pause) error {
	w, err := s.worker(ev.Worker)
	if err != nil {
		return err
	}
	if !ev.On {
		w.health = health.Record{}
		s.onHealthChange(now, w)
	}
	switch r := &w.row; {
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
	switch r := &w.row; {
	case ev.On:
		s.setAdminState(now, w, r.Paused && (r.Draining || r.Deadline == 0), true, ev.Until)
	case r.Draining:
		s.setAdminState(now, w, r.Paused, false, 0)
	}
	return nil
}

// setAdminState sets what an administrator asked of a worker.
func (s *State) setAdminState(now muster.Time, w *worker, paused, draining bool, deadline muster.Time) {
	r := &w.row
	if r.Paused == paused && r.Draining == draining && r.Deadline == deadline {
		return
	}
	w.drainSent = w.drainSent && draining
	w.evicting = false
	r.Paused, r.Draining, r.Deadline = paused, draining, deadline
	s.republish(now, w)
	s.armWorker(now, w)
	if len(w.held) == 0 {
		s.onIdle(now, w)
	}
}

// onDeadline handles the worker's deadline: a pause ends; the tasks of a draining
// worker are preempted.
func (s *State) onDeadline(now muster.Time, w *worker) {
	if !w.row.Draining {
		s.setAdminState(now, w, false, false, 0)
		return
	}
	w.evicting = true
	for _, t := range w.sortedTasks() {
		s.preemptGroup(now, t, muster.Preempted)
	}
}

// preemptGroup preempts a held task and all of its gang. The tasks are queued again,
// without a counted retry.
func (s *State) preemptGroup(now muster.Time, t *task, reason muster.Reason) {
	if !t.group.gang() {
		s.preempt(now, t, reason)
		return
	}
	for _, m := range t.group.sortedTasks() {
		s.preempt(now, m, reason)
	}
}

// preempt stops a held task unless it is being cancelled or preempted already.
func (s *State) preempt(now muster.Time, t *task, reason muster.Reason) {
	if t.worker != nil && t.row.State != muster.Cancelling && t.preemptReason == muster.NoReason {
		t.preemptReason = reason
		s.stop(now, t)
	}
}

// stop sends the worker a stop for the current attempt, again after a reconnect, and
// sets the deadline for its report.
func (s *State) stop(now muster.Time, t *task) {
	t.stopBy = now.Add(t.stopTimeout())
	s.armTask(t)
	reason := t.preemptReason
	if t.row.State == muster.Cancelling {
		reason = muster.CancelledByUser
	}
	s.send(t.worker, Stop{Worker: t.row.Worker, Attempt: t.attempt(), Outcome: muster.AttemptCancelled, Reason: reason})
}

func (s *State) approve(now muster.Time, ev Approve) error {
	w, err := s.worker(ev.Worker)
	if err != nil || !w.row.Pending {
		return err
	}
	w.row.Pending = false
	s.countCapacity(w, 1)
	s.republish(now, w)
	return nil
}

func (s *State) quarantine(now muster.Time, ev Quarantine) error {
	w, err := s.worker(ev.Worker)
	if err == nil {
		w.row.Quarantined = ev.Reason
		s.republish(now, w)
	}
	return err
}

func (s *State) heal(ev Heal) error {
	w, err := s.worker(ev.Worker)
	if err != nil {
		return err
	}
	if !w.reachable() {
		return muster.Errorf(muster.Conflict, "worker %s is %s: its GPUs can be checked again when it reconnects", w.row.Name, w.row.State)
	}
	gpus, err := placement.Quarantined(&w.row, ev.GPUs)
	if err == nil {
		s.send(w, HealGPUs{Worker: w.row.ID, GPUs: gpus})
	}
	return err
}

func (s *State) remove(now muster.Time, ev Remove) error {
	w, err := s.worker(ev.Worker)
	if err != nil {
		return err
	}
	if !w.gone && (w.reachable() && !w.row.Pending || ev.Departed) {
		return muster.Errorf(muster.Conflict, "worker %s is %s: drain or stop it before you remove it", w.row.ID, w.row.State)
	}
	for _, t := range w.sortedTasks() {
		s.end(now, t, retry.End{
			Outcome: muster.AttemptLost, Reason: muster.WorkerLost, At: now, Message: "worker " + w.row.Name + " was removed",
		})
	}
	w.connected = false
	s.markGone(now, w)
	s.queue.RemoveWorker(&w.Worker)
	s.limits.Count(&w.row, -1)
	s.timers.Arm(&w.timer, 0)
	i, _ := s.find(w.row.ID)
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
		row := w.row
		free := w.Usage.Free()
		row.Free, row.Running, row.Load, row.LastSeenAt = &free, len(w.held), w.load, w.seen
		if w.reachable() {
			row.Constrained = w.constrained
		}
		row.Health = w.health.Summary(now)
		row.Tasks = make([]muster.TaskID, min(len(w.held), maxListedTasks))
		for i := range row.Tasks {
			row.Tasks[i] = w.held[i].row.ID
		}
		list[i] = row
	}
	return list
}

// liveJob returns a job in memory. Other jobs are NotFound, or a Conflict if they have ended.
func (s *State) liveJob(id muster.JobID) (*job, error) {
	j := s.jobs[id]
	switch {
	case j == nil && (id < 1 || id >= s.nextJob):
		return nil, muster.Errorf(muster.NotFound, "there is no job %s", id)
	case j == nil:
		return nil, muster.Errorf(muster.Conflict, "job %s has already ended", id)
	}
	return j, nil
}

func (s *State) cancel(now muster.Time, ev Cancel) error {
	j, err := s.liveJob(ev.Job)
	if err != nil {
		return err
	}
	last := &j.groups[len(j.groups)-1].row
	spans, err := normalizeSpans(ev.Tasks, last.First+last.Size-1)
	if err != nil {
		return muster.Errorf(muster.NotFound, "job %s %w", ev.Job, err)
	}
	n := 0
	for _, g := range j.groups {
		for _, span := range spans {
			first, last := max(span.First-g.row.First, 0), min(span.Last-g.row.First, g.row.Size-1)
			if first <= last {
				n += s.cancelRange(now, g, first, last, muster.CancelledByUser, "")
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
func (s *State) cancelRange(now muster.Time, g *group, first, last int, reason muster.Reason, message string) int {
	n := 0
	if g.gang() {
		first, last = 0, g.row.Size-1
		defer s.armGroup(g)
		if g.item.Queued() && g.unmaterialized() == 0 {
			s.queue.Remove(&g.item)
		}
	}
	for _, t := range g.sortedTasks() {
		if e := t.element(); e >= first && e <= last && s.cancelTask(now, t, reason, message) {
			n++
		}
	}
	rest := g.unmaterialized()
	if g.row.UnmaterializedState.Final() || rest == 0 || last < g.row.Materialized {
		return n
	}
	if first <= g.row.Materialized && last == g.row.Size-1 {
		s.transitionRest(now, g, muster.Cancelled, reason, message)
		return n + rest
	}
	for e := max(first, g.row.Materialized); e <= last; e++ {
		if g.tasks[e] == nil && e >= g.row.Materialized {
			s.cancelTask(now, s.materialize(g, e), reason, message)
			n++
		}
	}
	return n
}

func (s *State) cancelTask(now muster.Time, t *task, reason muster.Reason, message string) bool {
	switch t.row.State {
	case muster.Waiting, muster.Queued:
		if t.item.Queued() {
			s.queue.Remove(&t.item)
		}
		t.row.Reason, t.row.Message, t.row.FinishedAt, t.row.NotBefore = reason, message, now, 0
		s.setState(now, t, muster.Cancelled)
		return true
	case muster.Assigned, muster.Running:
		if t.awaitingGang() {
			t.row.Reason, t.row.Message, t.row.FinishedAt = reason, message, now
			s.setState(now, t, muster.Cancelled)
			return true
		}
		t.row.Reason, t.row.Message = reason, message
		s.setState(now, t, muster.Cancelling)
		s.stop(now, t)
		return true
	default:
		return false
	}
}
