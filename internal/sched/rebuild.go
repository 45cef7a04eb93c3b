package sched

import (
	"cmp"
	"slices"

	"github.com/muster-dev/muster"
)

// Rebuild makes a State from the committed rows, after a restart or a failed commit.
// No worker is connected, and each counts as last seen now: the leases of running
// attempts restart. Rows that contradict each other are an Internal error.
func Rebuild(cfg Config, now muster.Time, snap muster.Snapshot) (*State, error) {
	s := New(cfg)
	s.nextJob = max(snap.NextJob, 1)
	for _, row := range snap.Workers {
		s.restoreWorker(now, row)
	}
	for project, counts := range snap.Totals {
		s.statsOf(project).counts = counts
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
			return nil, muster.Errorf(muster.Internal, "stored job %s is invalid: %w", row.ID, err)
		}
		s.addJob(j)
		s.addFailures(j, int(row.Counts[muster.Failed]+row.Counts[muster.TimedOut]))
	}
	for i := range snap.Tasks {
		if err := s.restoreTask(now, &snap.Tasks[i]); err != nil {
			return nil, err
		}
	}
	for _, row := range snap.Jobs {
		s.resume(now, s.jobs[row.ID])
	}
	for _, w := range s.workers {
		s.armWorker(now, w)
	}
	s.propagate(now)
	return s, s.Check()
}

func (s *State) restoreWorker(now muster.Time, row muster.Worker) {
	i, known := s.find(row.ID)
	if known {
		return
	}
	w := newWorker(row)
	w.seen = now
	s.limits.Count(&w.row, 1)
	s.workers = slices.Insert(s.workers, i, w)
	gone := row.State == muster.WorkerGone
	s.applyDescription(w, row)
	if gone {
		s.countCapacity(w, -1)
		w.gone = true
	}
	w.row.State = muster.WorkerUnreachable
	w.Usage.ClosedReason = "is unreachable"
	if gone {
		w.row.State = muster.WorkerGone
		w.Usage.ClosedReason = "has left"
	}
	s.queue.SpecChanged(&w.Worker)
}

func (s *State) restoreTask(now muster.Time, row *muster.Task) error {
	j := s.jobs[row.ID.Job]
	if j == nil {
		return muster.Errorf(muster.Internal, "stored task %s has no live job", row.ID)
	}
	g := j.group(row.ID.Num)
	if g == nil || g.tasks[row.ID.Num-g.row.First] != nil {
		return muster.Errorf(muster.Internal, "stored task %s is in no group of its job, or duplicated", row.ID)
	}
	t := &task{row: *row}
	g.attach(t)
	s.addFailures(j, row.Retries)
	if t.row.Cache != nil && t.row.State == muster.Queued {
		s.inflight.Queue(t.cacheKey(), t)
	}
	if !t.row.State.HoldsResources() || t.awaitingGang() {
		return nil
	}
	w, err := s.worker(t.row.Worker)
	if err != nil || t.row.Grant == nil {
		return muster.Errorf(muster.Internal, "stored task %s is %s on worker %q, but the worker or the grant is missing", row.ID, row.State, row.Worker)
	}
	s.allocate(t, w)
	w.shrunk = w.Usage.Overcommitted()
	if t.row.State == muster.Cancelling {
		t.stopBy = now.Add(t.stopTimeout())
	}
	return nil
}

// resume queues the placeable tasks of a restored job and sets its timers.
func (s *State) resume(now muster.Time, j *job) {
	for _, g := range j.groups {
		if g.row.Counts[muster.Waiting] == 0 && len(g.spec().Inputs) > 0 && g.row.Counts.Finished() < int64(g.row.Size) {
			if reason, err := g.resolve(); err != nil {
				s.failQueued(now, g, reason, err.Error())
			}
		}
		if g.gang() {
			s.resumeGang(now, g)
			continue
		}
		if g.row.UnmaterializedState == muster.Queued && g.unmaterialized() > 0 {
			s.enqueueRest(g)
			s.armGroup(g)
		}
		for _, t := range g.sortedTasks() {
			if t.row.State == muster.Queued && t.row.NotBefore <= now {
				s.enqueue(t)
			}
			s.armTask(t)
		}
	}
}

// failQueued fails the queued tasks of a stage whose inputs are missing.
func (s *State) failQueued(now muster.Time, g *group, reason muster.Reason, message string) {
	for _, t := range g.sortedTasks() {
		if t.row.State == muster.Queued {
			t.row.Reason, t.row.Message, t.row.FinishedAt = reason, message, now
			s.setState(now, t, muster.Failed)
		}
	}
	if g.row.UnmaterializedState == muster.Queued {
		s.transitionRest(now, g, muster.Failed, reason, message)
	}
}

// Snapshot returns what Rebuild needs. A State rebuilt from the committed rows has an
// equal Snapshot. It leaves out what a restart loses, as the package comment lists.
func (s *State) Snapshot() muster.Snapshot {
	snap := muster.Snapshot{NextJob: s.nextJob, Totals: s.projectTotals()}
	ids := make([]muster.JobID, 0, len(s.jobs))
	for id := range s.jobs {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		j := s.jobs[id]
		row := j.rowWithProgress()
		snap.Jobs = append(snap.Jobs, row)
		for _, g := range j.groups {
			snap.Groups = append(snap.Groups, g.row)
			for _, t := range g.sortedTasks() {
				row := t.row
				if t.storedProgress != nil {
					row.Progress, row.Step, row.Metrics = t.storedProgress.progress, t.storedProgress.step, t.storedProgress.metrics
				}
				snap.Tasks = append(snap.Tasks, row)
			}
		}
	}
	for _, w := range s.workers {
		row := w.row
		if row.State != muster.WorkerGone {
			row.State = muster.WorkerUnreachable
		}
		snap.Workers = append(snap.Workers, row)
	}
	return snap
}
