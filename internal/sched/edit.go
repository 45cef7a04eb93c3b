package sched

import "github.com/muster-dev/muster"

// edit changes the priority of a live job, or holds or releases it.
func (s *State) edit(now muster.Time, ev Edit) error {
	j, err := s.liveJob(ev.Job)
	if err != nil {
		return err
	}
	priority, held := j.row.Priority, j.row.Held
	if ev.Priority != nil {
		priority = *ev.Priority
	}
	if ev.Held != nil {
		held = *ev.Held
	}
	if priority < muster.MinPriority || priority > muster.MaxPriority {
		return muster.Errorf(muster.Invalid, "priority %d is not between %d and %d", priority, muster.MinPriority, muster.MaxPriority)
	}
	if priority == j.row.Priority && held == j.row.Held {
		return nil
	}
	released := j.row.Held && !held
	j.row.Priority, j.row.Held = priority, held
	for _, g := range j.groups {
		if released {
			s.restartQueueTimeout(now, g)
		}
		s.requeue(g)
		s.armGroup(g)
		for _, t := range g.sortedTasks() {
			s.armTask(t)
		}
	}
	s.changedJob(j)
	s.publishJob(now, j)
	return nil
}

// restartQueueTimeout makes the queued tasks of a group count as queued since now.
func (s *State) restartQueueTimeout(now muster.Time, g *group) {
	if g.row.UnmaterializedState == muster.Queued {
		g.row.UnmaterializedSince = now
		s.changedGroup(g)
	}
	for _, t := range g.sortedTasks() {
		if t.row.State == muster.Queued {
			t.row.QueuedAt = now
			s.changedTask(t)
		}
	}
}
