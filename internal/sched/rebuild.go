package sched

import (
	"cmp"
	"slices"

	"github.com/muster-dev/muster"
)

// Rebuild makes the State that has the committed rows snap, after a restart or a
// failed commit. No worker is connected, and each counts as heard now: the
// leases of running attempts start anew. It refuses rows that contradict each
// other with an Internal error.
func Rebuild(cfg Config, now muster.Time, snap muster.Snapshot) (*State, error) {
	s := New(cfg)
	s.next = max(snap.NextJob, 1)
	for _, row := range snap.Workers {
		s.restoreWorker(now, row)
	}
	groups := map[muster.JobID][]muster.Group{}
	for _, g := range snap.Groups {
		groups[g.Job] = append(groups[g.Job], g)
	}
	for _, row := range snap.Jobs {
		list := groups[row.ID]
		slices.SortFunc(list, func(a, b muster.Group) int { return cmp.Compare(a.Index, b.Index) })
		j, err := newJob(row, list)
		if err != nil {
			return nil, muster.Errorf(muster.Internal, "job %s as stored is not sound: %w", row.ID, err)
		}
		s.load(j)
	}
	for i := range snap.Tasks {
		if err := s.restoreTask(now, &snap.Tasks[i]); err != nil {
			return nil, err
		}
	}
	for _, row := range snap.Jobs {
		s.resume(now, s.jobs[row.ID])
	}
	for _, w := range s.order {
		s.armWorker(w)
	}
	s.settle(now)
	return s, s.Check()
}

func (s *State) restoreWorker(now muster.Time, row muster.Worker) {
	i, known := s.find(row.ID)
	if known {
		return
	}
	w := newWorker(row)
	w.seen = now
	s.order = slices.Insert(s.order, i, w)
	gone := row.State == muster.WorkerGone
	s.describe(w, row)
	if gone {
		w.gone = true
		s.fleet.Offer(&w.row.Resources, -1)
	}
	w.row.State = muster.WorkerUnreachable
	w.Book.Closed = "is unreachable"
	if gone {
		w.row.State = muster.WorkerGone
		w.Book.Closed = "has left"
	}
	s.queue.Reopened(&w.Worker)
}

func (s *State) restoreTask(now muster.Time, row *muster.Task) error {
	j := s.jobs[row.ID.Job]
	if j == nil {
		return muster.Errorf(muster.Internal, "task %s as stored has no live job", row.ID)
	}
	g := j.group(row.ID.Num)
	if g == nil || g.tasks[row.ID.Num-g.row.First] != nil {
		return muster.Errorf(muster.Internal, "task %s as stored is in no group of its job, or there twice", row.ID)
	}
	t := &task{row: *row}
	g.adopt(t)
	if !t.row.State.Held() || t.done() {
		return nil
	}
	w, err := s.worker(t.row.Worker)
	if err != nil || t.row.Grant == nil {
		return muster.Errorf(muster.Internal, "task %s as stored is %s on worker %q, without that worker or a grant", row.ID, row.State, row.Worker)
	}
	s.hold(t, w)
	w.shrunk = w.Book.Over()
	if t.row.State == muster.Cancelling {
		t.stopBy = now.Add(t.patience())
	}
	return nil
}

// resume queues what may be placed and sets the timers of a job that was
// restored.
func (s *State) resume(now muster.Time, j *job) {
	for _, g := range j.groups {
		if g.row.Counts[muster.Waiting] == 0 && len(g.spec().Inputs) > 0 && g.row.Counts.Finished() < int64(g.row.Size) {
			if why, err := s.resolve(g); err != nil {
				s.failQueued(now, g, why, err.Error())
			}
		}
		if g.gang() {
			s.resumeGang(now, g)
			continue
		}
		if g.row.Rest == muster.Queued && g.rest() > 0 {
			s.enqueueRest(g)
			s.armGroup(g)
		}
		for _, t := range g.elements() {
			if t.row.State == muster.Queued && t.row.NotBefore <= now {
				s.enqueue(t)
			}
			s.armTask(t)
		}
	}
}

// failQueued ends what is queued of a stage whose inputs are no longer there.
func (s *State) failQueued(now muster.Time, g *group, why muster.Reason, message string) {
	for _, t := range g.elements() {
		if t.row.State == muster.Queued {
			t.row.Reason, t.row.Message, t.row.FinishedAt = why, message, now
			s.set(now, t, muster.Failed)
		}
	}
	if g.row.Rest == muster.Queued {
		s.moveRest(now, g, muster.Failed, why, message)
	}
}

// Snapshot returns what Rebuild needs of the live state. Rebuilding from the
// rows that were committed gives a State with an equal Snapshot. It leaves out what
// does not outlive the process, as the package comment lists.
func (s *State) Snapshot() muster.Snapshot {
	snap := muster.Snapshot{NextJob: s.next}
	ids := make([]muster.JobID, 0, len(s.jobs))
	for id := range s.jobs {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		j := s.jobs[id]
		row := j.shown()
		snap.Jobs = append(snap.Jobs, row)
		for _, g := range j.groups {
			snap.Groups = append(snap.Groups, g.row)
			for _, t := range g.elements() {
				snap.Tasks = append(snap.Tasks, t.row)
			}
		}
	}
	for _, w := range s.order {
		row := w.row
		if row.State != muster.WorkerGone {
			row.State = muster.WorkerUnreachable
		}
		snap.Workers = append(snap.Workers, row)
	}
	return snap
}
