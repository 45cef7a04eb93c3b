package sched

import (
	"slices"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/placement"
	"github.com/muster-dev/muster/internal/sched/queue"
)

// Check returns an Internal error that names the first broken invariant, or nil.
// It checks everything, and is meant for tests and for a State just rebuilt.
func (s *State) Check() error {
	for _, check := range []func() error{s.checkJobs, s.checkProjectStats, s.checkWorkers, s.checkShares, s.checkQueue, s.checkTimers} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func broken(format string, args ...any) error {
	return muster.Errorf(muster.Internal, "the scheduler's state is inconsistent: "+format, args...)
}

func (s *State) checkJobs() error {
	live := map[*queue.Project]int{}
	for id, j := range s.jobs {
		if id != j.row.ID || id >= s.nextJob {
			return broken("job %s is filed as %s; the next number is %s", j.row.ID, id, s.nextJob)
		}
		if j.row.State != j.row.Counts.State() || j.row.State.Final() {
			return broken("job %s is %q, its counts say %q", id, j.row.State, j.row.Counts.State())
		}
		live[j.project]++
		var sum muster.Counts
		for _, g := range j.groups {
			if err := g.check(s); err != nil {
				return err
			}
			sum = sum.Add(g.row.Counts)
		}
		if sum != j.row.Counts {
			return broken("job %s counts %v, its groups %v", id, j.row.Counts, sum)
		}
	}
	if len(live) != len(s.projects) {
		return broken("%d projects are known, %d have live jobs", len(s.projects), len(live))
	}
	for p, n := range live {
		if p.Jobs != n || s.projects[p.Name] != p {
			return broken("project %q counts %d live jobs, has %d", p.Name, p.Jobs, n)
		}
	}
	return nil
}

func (s *State) checkWorkers() error {
	if !slices.IsSortedFunc(s.workers, byID) {
		return broken("the workers are not in order")
	}
	for _, w := range s.workers {
		usage := placement.NewWorkerUsage(&w.row)
		for i, t := range w.held {
			if t.worker != w || t.heldIndex != i || s.task(t.row.ID) != t {
				return broken("worker %s holds task %s, which does not refer back", w.row.ID, t.row.ID)
			}
			usage.Reserve(t.row.Grant)
		}
		switch {
		case !usage.Equal(w.Usage):
			return broken("the usage of worker %s is wrong", w.row.ID)
		case w.Usage.Overcommitted() && !w.shrunk:
			return broken("worker %s has been given more than it has", w.row.ID)
		case w.gone && len(w.held) > 0:
			return broken("worker %s is gone and holds %d tasks", w.row.ID, len(w.held))
		case !w.gone && !w.timer.Armed() && (w.reachable() || len(w.held) == 0):
			return broken("worker %s has no timer for its absence", w.row.ID)
		case w.row.Deadline > 0 && !w.row.Draining && !w.row.Paused || w.evicting && (!w.row.Draining || w.row.Deadline == 0):
			return broken("worker %s has a deadline but is neither paused nor draining", w.row.ID)
		case w.row.Deadline > 0 && !w.evicting && !w.timer.Armed():
			return broken("worker %s has no timer for its deadline", w.row.ID)
		case (w.row.State == muster.WorkerGone) != w.gone || (w.row.State == muster.WorkerUnreachable) != (!w.gone && !w.reachable()):
			return broken("worker %s is %s; gone: %t, reachable: %t", w.row.ID, w.row.State, w.gone, w.reachable())
		}
	}
	return nil
}

func byID(a, b *worker) int { return strings.Compare(string(a.row.ID), string(b.row.ID)) }

// checkShares recounts what projects hold and what the fleet offers.
func (s *State) checkShares() error {
	var capacity queue.ResourceVector
	usage := map[*queue.Project]*queue.ResourceVector{}
	for _, p := range s.projects {
		usage[p] = &queue.ResourceVector{}
	}
	for _, w := range s.workers {
		if !w.gone && !w.row.Pending {
			capacity.AddCapacity(&w.row.Resources, 1)
		}
		for _, t := range w.held {
			usage[t.group.job.project].AddGrant(t.row.Grant, &w.row.Resources, 1)
		}
	}
	if capacity != s.capacity {
		return broken("the fleet offers %+v, not %+v", capacity, s.capacity)
	}
	for p, want := range usage {
		if *want != p.Usage {
			return broken("project %q holds %+v, not %+v", p.Name, *want, p.Usage)
		}
	}
	return nil
}

func (s *State) checkQueue() error {
	var err error
	s.queue.Each(func(priority int, p *queue.Project, it *queue.Item) {
		var g *group
		switch owner := it.Owner.(type) {
		case *task:
			g = owner.group
			if owner.row.State != muster.Queued || g.tasks[owner.element()] != owner {
				err = broken("task %s is in the queue and %s", owner.row.ID, owner.row.State)
			}
		case *group:
			g = owner
			if it.Num != g.row.First+g.row.Materialized && !g.gang() {
				err = broken("the unmaterialized elements of stage %q of job %s are queued under number %d", g.row.Name, g.row.Job, it.Num)
			}
		}
		if s.jobs[g.row.Job] != g.job || g.job.queuePriority() != priority || g.job.project != p {
			err = broken("a task of job %s is in another job's bucket", g.row.Job)
		}
	})
	if err != nil {
		return err
	}
	return s.queue.Check(len(s.workers))
}

func (s *State) checkTimers() error {
	var err error
	inOrder := s.timers.Check(func(subject queue.Subject) {
		if t, ok := subject.(*task); ok && s.task(t.row.ID) != t {
			err = broken("a timer waits for task %s, which is not in memory", t.row.ID)
		}
		if g, ok := subject.(*group); ok && s.jobs[g.row.Job] != g.job {
			err = broken("a timer waits for stage %q of job %s, which is not live", g.row.Name, g.row.Job)
		}
	})
	if err == nil && !inOrder {
		err = broken("the timers are out of order")
	}
	return err
}

// check returns an Internal error that names the first broken invariant of the group
// and its tasks, or nil.
func (g *group) check(s *State) error {
	var counts muster.Counts
	outOfOrder := 0
	for e, t := range g.tasks {
		if e != t.element() || t.group != g || e < 0 || e >= g.row.Size {
			return broken("task %s is stored as element %d of stage %q", t.row.ID, e, g.row.Name)
		}
		if err := t.check(); err != nil {
			return err
		}
		if err := s.checkCache(t); err != nil {
			return err
		}
		counts[t.row.State]++
		if e >= g.row.Materialized {
			outOfOrder++
		} else if t.row.State.Final() && !g.row.Retained {
			return broken("task %s is final and still in memory", t.row.ID)
		}
	}
	if outOfOrder != g.outOfOrder || g.unmaterialized() < 0 {
		return broken("stage %q of job %s has %d tasks from element %d on, but counts %d", g.row.Name, g.row.Job, outOfOrder, g.row.Materialized, g.outOfOrder)
	}
	if g.row.Materialized < g.row.Size && g.tasks[g.row.Materialized] != nil {
		return broken("stage %q of job %s has a row for the element %d at its cursor", g.row.Name, g.row.Job, g.row.Materialized)
	}
	counts[g.row.UnmaterializedState] += int64(g.unmaterialized())
	for _, state := range muster.TaskStates {
		have, want := counts[state], g.row.Counts[state]
		if pruned := state.Final() && !g.row.Retained; have != want && (!pruned || have > want) {
			return broken("stage %q of job %s counts %d %s tasks, has %d", g.row.Name, g.row.Job, want, state, have)
		}
	}
	if g.row.Counts.Total() != int64(g.row.Size) {
		return broken("stage %q of job %s counts %d tasks, has %d", g.row.Name, g.row.Job, g.row.Counts.Total(), g.row.Size)
	}
	if g.gang() {
		if err := g.checkGang(); err != nil {
			return err
		}
	} else if queued := g.row.UnmaterializedState == muster.Queued && g.unmaterialized() > 0; queued != (g.item.Queued()) {
		return broken("the unmaterialized elements of stage %q of job %s (%d, %s) are in the queue: %t", g.row.Name, g.row.Job, g.unmaterialized(), g.row.UnmaterializedState, g.item.Queued())
	}
	return g.checkNeeds(counts)
}

// checkNeeds checks that nothing of a stage started before its needs were met.
func (g *group) checkNeeds(counts muster.Counts) error {
	active := counts[muster.Queued] + counts[muster.Assigned] + counts[muster.Running]
	var want unmet
	for _, n := range g.needs {
		if !n.ended() {
			want.unended++
		}
		if n.unsuccessful() > 0 {
			want.unsuccessful++
		}
		if n.unmet.failed > 0 || n.row.Counts[muster.Failed]+n.row.Counts[muster.TimedOut] > 0 {
			want.failed++
		}
	}
	if want != g.unmet {
		return broken("stage %q of job %s counts its needs as %+v, not %+v", g.row.Name, g.row.Job, g.unmet, want)
	}
	for _, n := range g.needs {
		if g.spec().RunsAfterFailure() {
			continue // a retry of what it needs does not change it
		}
		if active > 0 && !n.succeeded() {
			return broken("stage %q of job %s has %d active tasks before %q succeeded", g.row.Name, g.row.Job, active, n.row.Name)
		}
		if counts[muster.Waiting] > 0 && n.unsuccessful() > 0 {
			return broken("stage %q of job %s waits for %q, which did not succeed", g.row.Name, g.row.Job, n.row.Name)
		}
	}
	if counts[muster.Waiting] > 0 && !slices.ContainsFunc(g.needs, func(n *group) bool { return !n.ended() }) {
		return broken("stage %q of job %s waits, but all that it needs has ended", g.row.Name, g.row.Job)
	}
	return nil
}

func (t *task) check() error {
	r := &t.row
	switch held := r.State.HoldsResources() && !t.awaitingGang(); {
	case held != (t.worker != nil):
		return broken("task %s is %s, but held by a worker: %t", r.ID, r.State, t.worker != nil)
	case held && (r.Worker != t.worker.row.ID || r.Grant == nil || r.Attempt < 1 || r.AssignedAt == 0):
		return broken("task %s is %s without worker, grant, attempt or time", r.ID, r.State)
	case held && (t.heldIndex >= len(t.worker.held) || t.worker.held[t.heldIndex] != t):
		return broken("task %s is not among the tasks of worker %s", r.ID, r.Worker)
	case r.State != muster.Queued && t.item.Queued():
		return broken("task %s is %s and in the queue", r.ID, r.State)
	case r.State == muster.Queued && !t.item.Queued() && !t.timer.Armed() && !t.parked && !t.group.gang():
		return broken("task %s is queued, but neither in the queue nor waiting for a timer", r.ID)
	case r.State == muster.Cancelling && !t.timer.Armed():
		return broken("task %s is being cancelled without a timer", r.ID)
	case held && t.worker.evicting && t.preemptReason == muster.NoReason && r.State != muster.Cancelling:
		return broken("task %s is not being preempted on worker %s", r.ID, r.Worker)
	case t.preemptReason != muster.NoReason && (!held || !t.timer.Armed()):
		return broken("task %s is %s and preempted without a timer", r.ID, r.State)
	case held && !t.worker.reachable() && !t.timer.Armed():
		return broken("task %s has a lease without a timer", r.ID)
	case r.State.Final() && (r.FinishedAt == 0 || t.timer.Armed()):
		return broken("task %s has ended without a time or with a timer", r.ID)
	}
	return nil
}
