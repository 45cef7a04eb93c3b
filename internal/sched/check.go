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
		if id != j.Row.ID || id >= s.nextJob {
			return broken("job %s is filed as %s; the next number is %s", j.Row.ID, id, s.nextJob)
		}
		if j.Row.State != j.Row.Counts.State() || j.Row.State.Final() {
			return broken("job %s is %q, its counts say %q", id, j.Row.State, j.Row.Counts.State())
		}
		live[j.Project]++
		var sum muster.Counts
		for _, g := range j.Groups {
			if err := g.Check(); err != nil {
				return err
			}
			sum = sum.Add(g.Row.Counts)
		}
		if sum != j.Row.Counts {
			return broken("job %s counts %v, its groups %v", id, j.Row.Counts, sum)
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
		usage := placement.NewWorkerUsage(&w.Row)
		for i, t := range w.Held {
			if t.Worker != w || t.HeldIndex != i || s.task(t.Row.ID) != t {
				return broken("worker %s holds task %s, which does not refer back", w.Row.ID, t.Row.ID)
			}
			usage.Reserve(t.Row.Grant)
		}
		switch {
		case !usage.Equal(w.Usage):
			return broken("the usage of worker %s is wrong", w.Row.ID)
		case w.Usage.Overcommitted() && !w.Shrunk:
			return broken("worker %s has been given more than it has", w.Row.ID)
		case w.Gone && len(w.Held) > 0:
			return broken("worker %s is gone and holds %d tasks", w.Row.ID, len(w.Held))
		case !w.Gone && !w.Timer.Armed() && (w.Reachable() || len(w.Held) == 0):
			return broken("worker %s has no timer for its absence", w.Row.ID)
		case w.Row.Deadline > 0 && !w.Row.Draining && !w.Row.Paused || w.Evicting && (!w.Row.Draining || w.Row.Deadline == 0):
			return broken("worker %s has a deadline but is neither paused nor draining", w.Row.ID)
		case w.Row.Deadline > 0 && !w.Evicting && !w.Timer.Armed():
			return broken("worker %s has no timer for its deadline", w.Row.ID)
		case (w.Row.State == muster.WorkerGone) != w.Gone || (w.Row.State == muster.WorkerUnreachable) != (!w.Gone && !w.Reachable()):
			return broken("worker %s is %s; gone: %t, reachable: %t", w.Row.ID, w.Row.State, w.Gone, w.Reachable())
		}
	}
	return nil
}

func byID(a, b *worker) int { return strings.Compare(string(a.Row.ID), string(b.Row.ID)) }

// checkShares recounts what projects hold and what the fleet offers.
func (s *State) checkShares() error {
	var capacity queue.Resources
	usage := map[*queue.Project]*queue.Resources{}
	for _, p := range s.projects {
		usage[p] = &queue.Resources{}
	}
	for _, w := range s.workers {
		if !w.Gone {
			capacity.AddCapacity(&w.Row.Resources, 1)
		}
		for _, t := range w.Held {
			usage[t.Group.Job.Project].AddGrant(t.Row.Grant, &w.Row.Resources, 1)
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
			g = owner.Group
			if owner.Row.State != muster.Queued || g.Tasks[owner.Element()] != owner {
				err = broken("task %s is in the queue and %s", owner.Row.ID, owner.Row.State)
			}
		case *group:
			g = owner
			if it.Num != g.Row.First+g.Row.Materialized && !g.Gang() {
				err = broken("the unmaterialized elements of stage %q of job %s are queued under number %d", g.Row.Name, g.Row.Job, it.Num)
			}
		}
		if s.jobs[g.Row.Job] != g.Job || g.Job.Row.Priority != priority || g.Job.Project != p {
			err = broken("a task of job %s is in another job's bucket", g.Row.Job)
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
		if t, ok := subject.(*task); ok && s.task(t.Row.ID) != t {
			err = broken("a timer waits for task %s, which is not in memory", t.Row.ID)
		}
		if g, ok := subject.(*group); ok && s.jobs[g.Row.Job] != g.Job {
			err = broken("a timer waits for stage %q of job %s, which is not live", g.Row.Name, g.Row.Job)
		}
	})
	if err == nil && !inOrder {
		err = broken("the timers are out of order")
	}
	return err
}

// Check returns an Internal error that names the first broken invariant of the group
// and its tasks, or nil.
func (g *group) Check() error {
	var counts muster.Counts
	outOfOrder := 0
	for e, t := range g.Tasks {
		if e != t.Element() || t.Group != g || e < 0 || e >= g.Row.Size {
			return broken("task %s is stored as element %d of stage %q", t.Row.ID, e, g.Row.Name)
		}
		if err := t.check(); err != nil {
			return err
		}
		counts[t.Row.State]++
		if e >= g.Row.Materialized {
			outOfOrder++
		} else if t.Row.State.Final() && !g.Row.Retained {
			return broken("task %s is final and still in memory", t.Row.ID)
		}
	}
	if outOfOrder != g.outOfOrder || g.Unmaterialized() < 0 {
		return broken("stage %q of job %s has %d tasks from element %d on, but counts %d", g.Row.Name, g.Row.Job, outOfOrder, g.Row.Materialized, g.outOfOrder)
	}
	if g.Row.Materialized < g.Row.Size && g.Tasks[g.Row.Materialized] != nil {
		return broken("stage %q of job %s has a row for the element %d at its cursor", g.Row.Name, g.Row.Job, g.Row.Materialized)
	}
	counts[g.Row.UnmaterializedState] += int64(g.Unmaterialized())
	for _, state := range muster.TaskStates {
		have, want := counts[state], g.Row.Counts[state]
		if pruned := state.Final() && !g.Row.Retained; have != want && (!pruned || have > want) {
			return broken("stage %q of job %s counts %d %s tasks, has %d", g.Row.Name, g.Row.Job, want, state, have)
		}
	}
	if g.Row.Counts.Total() != int64(g.Row.Size) {
		return broken("stage %q of job %s counts %d tasks, has %d", g.Row.Name, g.Row.Job, g.Row.Counts.Total(), g.Row.Size)
	}
	if g.Gang() {
		if err := g.checkGang(); err != nil {
			return err
		}
	} else if queued := g.Row.UnmaterializedState == muster.Queued && g.Unmaterialized() > 0; queued != (g.Item.Queued()) {
		return broken("the unmaterialized elements of stage %q of job %s (%d, %s) are in the queue: %t", g.Row.Name, g.Row.Job, g.Unmaterialized(), g.Row.UnmaterializedState, g.Item.Queued())
	}
	return g.checkNeeds(counts)
}

// checkNeeds checks that nothing of a stage started before its needs were met.
func (g *group) checkNeeds(counts muster.Counts) error {
	active := counts[muster.Queued] + counts[muster.Assigned] + counts[muster.Running]
	for _, n := range g.Needs {
		if active > 0 && !n.Succeeded() {
			return broken("stage %q of job %s has %d active tasks before %q succeeded", g.Row.Name, g.Row.Job, active, n.Row.Name)
		}
		if counts[muster.Waiting] > 0 && n.Unsuccessful() > 0 {
			return broken("stage %q of job %s waits for %q, which did not succeed", g.Row.Name, g.Row.Job, n.Row.Name)
		}
	}
	if len(g.Needs) == 0 && counts[muster.Waiting] > 0 {
		return broken("stage %q of job %s waits, but needs no stage", g.Row.Name, g.Row.Job)
	}
	return nil
}

func (t *task) check() error {
	r := &t.Row
	switch held := r.State.HoldsResources() && !t.AwaitingGang(); {
	case held != (t.Worker != nil):
		return broken("task %s is %s, but held by a worker: %t", r.ID, r.State, t.Worker != nil)
	case held && (r.Worker != t.Worker.Row.ID || r.Grant == nil || r.Attempt < 1 || r.AssignedAt == 0):
		return broken("task %s is %s without worker, grant, attempt or time", r.ID, r.State)
	case held && (t.HeldIndex >= len(t.Worker.Held) || t.Worker.Held[t.HeldIndex] != t):
		return broken("task %s is not among the tasks of worker %s", r.ID, r.Worker)
	case r.State != muster.Queued && t.Item.Queued():
		return broken("task %s is %s and in the queue", r.ID, r.State)
	case r.State == muster.Queued && !t.Item.Queued() && !t.Timer.Armed() && !t.Group.Gang():
		return broken("task %s is queued, but neither in the queue nor waiting for a timer", r.ID)
	case r.State == muster.Cancelling && !t.Timer.Armed():
		return broken("task %s is being cancelled without a timer", r.ID)
	case held && t.Worker.Evicting && t.PreemptReason == muster.NoReason && r.State != muster.Cancelling:
		return broken("task %s is not being preempted on worker %s", r.ID, r.Worker)
	case t.PreemptReason != muster.NoReason && (!held || !t.Timer.Armed()):
		return broken("task %s is %s and preempted without a timer", r.ID, r.State)
	case held && !t.Worker.Reachable() && !t.Timer.Armed():
		return broken("task %s has a lease without a timer", r.ID)
	case r.State.Final() && (r.FinishedAt == 0 || t.Timer.Armed()):
		return broken("task %s has ended without a time or with a timer", r.ID)
	}
	return nil
}
