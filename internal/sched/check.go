package sched

import (
	"slices"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/placement"
	"github.com/muster-dev/muster/internal/sched/heap"
	"github.com/muster-dev/muster/internal/sched/model"
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

func byID(a, b *model.Worker) int { return strings.Compare(string(a.Row.ID), string(b.Row.ID)) }

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
		var g *model.Group
		switch owner := it.Owner.(type) {
		case *model.Task:
			g = owner.Group
			if owner.Row.State != muster.Queued || g.Tasks[owner.Element()] != owner {
				err = broken("task %s is in the queue and %s", owner.Row.ID, owner.Row.State)
			}
		case *model.Group:
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
	inOrder := s.timers.Check(func(subject heap.Subject) {
		if t, ok := subject.(*model.Task); ok && s.task(t.Row.ID) != t {
			err = broken("a timer waits for task %s, which is not in memory", t.Row.ID)
		}
		if g, ok := subject.(*model.Group); ok && s.jobs[g.Row.Job] != g.Job {
			err = broken("a timer waits for stage %q of job %s, which is not live", g.Row.Name, g.Row.Job)
		}
	})
	if err == nil && !inOrder {
		err = broken("the timers are out of order")
	}
	return err
}
