package sched

import (
	"slices"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/place"
	"github.com/muster-dev/muster/internal/sched/heap"
	"github.com/muster-dev/muster/internal/sched/queue"
)

// Check returns an Internal error that names the first broken invariant, or nil.
// It looks at everything and is meant for tests, and for a State just rebuilt.
func (s *State) Check() error {
	for _, check := range []func() error{s.checkJobs, s.checkWorkers, s.checkShares, s.checkQueue, s.checkTimers} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func broken(format string, args ...any) error {
	return muster.Errorf(muster.Internal, "the scheduler's state is broken: "+format, args...)
}

func (s *State) checkJobs() error {
	live := map[*queue.Project]int{}
	for id, j := range s.jobs {
		if id != j.row.ID || id >= s.next {
			return broken("job %s is filed as %s; the next number is %s", j.row.ID, id, s.next)
		}
		if j.row.State != j.row.Counts.State() || j.row.State.Final() {
			return broken("job %s is %q, its counts say %q", id, j.row.State, j.row.Counts.State())
		}
		live[j.project]++
		var sum muster.Counts
		for _, g := range j.groups {
			if err := g.check(); err != nil {
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

func (g *group) check() error {
	var counts muster.Counts
	ahead := 0
	for e, t := range g.tasks {
		if e != t.element() || t.group != g || e < 0 || e >= g.row.Size {
			return broken("task %s is filed as element %d of stage %q", t.row.ID, e, g.row.Name)
		}
		if err := t.check(); err != nil {
			return err
		}
		counts[t.row.State]++
		if e >= g.row.Next {
			ahead++
		} else if t.row.State.Final() && !g.row.Kept {
			return broken("task %s is final and still in memory", t.row.ID)
		}
	}
	if ahead != g.ahead || g.rest() < 0 {
		return broken("stage %q of job %s has %d tasks from element %d on, counts %d", g.row.Name, g.row.Job, ahead, g.row.Next, g.ahead)
	}
	if g.row.Next < g.row.Size && g.tasks[g.row.Next] != nil {
		return broken("stage %q of job %s has a row for element %d, at its cursor", g.row.Name, g.row.Job, g.row.Next)
	}
	counts[g.row.Rest] += int64(g.rest())
	for _, state := range muster.TaskStates {
		have, want := counts[state], g.row.Counts[state]
		if gone := state.Final() && !g.row.Kept; have != want && (!gone || have > want) {
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
	} else if queued := g.row.Rest == muster.Queued && g.rest() > 0; queued != (g.item.Queued()) {
		return broken("the rest of stage %q of job %s (%d, %s) is in the queue: %t", g.row.Name, g.row.Job, g.rest(), g.row.Rest, g.item.Queued())
	}
	return g.checkNeeds(counts)
}

// checkNeeds holds that nothing of a stage started before its needs were met.
func (g *group) checkNeeds(counts muster.Counts) error {
	moving := counts[muster.Queued] + counts[muster.Assigned] + counts[muster.Running]
	for _, n := range g.needs {
		if moving > 0 && !n.succeeded() {
			return broken("stage %q of job %s has %d tasks on their way before %q succeeded", g.row.Name, g.row.Job, moving, n.row.Name)
		}
		if counts[muster.Waiting] > 0 && n.missed() > 0 {
			return broken("stage %q of job %s waits for %q, which will not succeed", g.row.Name, g.row.Job, n.row.Name)
		}
	}
	if len(g.needs) == 0 && counts[muster.Waiting] > 0 {
		return broken("stage %q of job %s waits for nothing", g.row.Name, g.row.Job)
	}
	return nil
}

func (t *task) check() error {
	r := &t.row
	switch held := r.State.Held() && !t.done(); {
	case held != (t.worker != nil):
		return broken("task %s is %s, and held by a worker: %t", r.ID, r.State, t.worker != nil)
	case held && (r.Worker != t.worker.row.ID || r.Grant == nil || r.Attempt < 1 || r.AssignedAt == 0):
		return broken("task %s is %s without worker, grant, attempt or time", r.ID, r.State)
	case held && (t.at >= len(t.worker.held) || t.worker.held[t.at] != t):
		return broken("task %s is not among what worker %s holds", r.ID, r.Worker)
	case r.State != muster.Queued && t.item.Queued():
		return broken("task %s is %s and in the queue", r.ID, r.State)
	case r.State == muster.Queued && !t.item.Queued() && !t.timer.Armed() && !t.group.gang():
		return broken("task %s is queued, and neither in the queue nor waiting for a time", r.ID)
	case r.State == muster.Cancelling && !t.timer.Armed():
		return broken("task %s is being cancelled without an end", r.ID)
	case held && t.worker.clearing && t.room == muster.NoReason && r.State != muster.Cancelling:
		return broken("task %s was not told to make room on worker %s", r.ID, r.Worker)
	case t.room != muster.NoReason && (!held || !t.timer.Armed()):
		return broken("task %s is %s and makes room without an end", r.ID, r.State)
	case held && !t.worker.reachable() && !t.timer.Armed():
		return broken("task %s has a lease without an end", r.ID)
	case r.State.Final() && (r.FinishedAt == 0 || t.timer.Armed()):
		return broken("task %s has ended without a time, or with a timer", r.ID)
	}
	return nil
}

func (s *State) checkWorkers() error {
	if !slices.IsSortedFunc(s.order, byID) {
		return broken("the workers are not in order")
	}
	for _, w := range s.order {
		book := place.NewBook(&w.row)
		for i, t := range w.held {
			if t.worker != w || t.at != i || s.task(t.row.ID) != t {
				return broken("worker %s holds task %s, which does not know", w.row.ID, t.row.ID)
			}
			book.Take(t.row.Grant)
		}
		switch {
		case !book.Equal(w.Book):
			return broken("the account of worker %s is wrong", w.row.ID)
		case w.Book.Over() && !w.shrunk:
			return broken("worker %s has been given more than it has", w.row.ID)
		case w.gone && len(w.held) > 0:
			return broken("worker %s is gone and holds %d tasks", w.row.ID, len(w.held))
		case !w.gone && !w.timer.Armed() && (w.reachable() || len(w.held) == 0):
			return broken("nobody notices when worker %s stays away", w.row.ID)
		case w.row.Deadline > 0 && !w.row.Draining && !w.row.Paused || w.clearing && (!w.row.Draining || w.row.Deadline == 0):
			return broken("worker %s has a deadline for nothing", w.row.ID)
		case w.row.Deadline > 0 && !w.clearing && !w.timer.Armed():
			return broken("nobody notices the deadline of worker %s", w.row.ID)
		case (w.row.State == muster.WorkerGone) != w.gone || (w.row.State == muster.WorkerUnreachable) != (!w.gone && !w.reachable()):
			return broken("worker %s is %s; gone: %t, reachable: %t", w.row.ID, w.row.State, w.gone, w.reachable())
		}
	}
	return nil
}

// checkShares counts anew what projects hold and what the fleet offers.
func (s *State) checkShares() error {
	var fleet queue.Amounts
	holds := map[*queue.Project]*queue.Amounts{}
	for _, p := range s.projects {
		holds[p] = &queue.Amounts{}
	}
	for _, w := range s.order {
		if !w.gone {
			fleet.Offer(&w.row.Resources, 1)
		}
		for _, t := range w.held {
			holds[t.group.job.project].Grant(t.row.Grant, &w.row.Resources, 1)
		}
	}
	if fleet != s.fleet {
		return broken("the fleet offers %+v, not %+v", fleet, s.fleet)
	}
	for p, want := range holds {
		if *want != p.Holds {
			return broken("project %q holds %+v, not %+v", p.Name, *want, p.Holds)
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
			if it.Num != g.row.First+g.row.Next && !g.gang() {
				err = broken("the rest of stage %q of job %s is queued under number %d", g.row.Name, g.row.Job, it.Num)
			}
		}
		if s.jobs[g.row.Job] != g.job || g.job.row.Priority != priority || g.job.project != p {
			err = broken("a task of job %s stands in a foreign lane", g.row.Job)
		}
	})
	if err != nil {
		return err
	}
	return s.queue.Check(len(s.order))
}

func (s *State) checkTimers() error {
	var err error
	inOrder := s.timers.Check(func(of heap.Subject) {
		if t, ok := of.(*task); ok && s.task(t.row.ID) != t {
			err = broken("a timer waits for task %s, which is not in memory", t.row.ID)
		}
		if g, ok := of.(*group); ok && s.jobs[g.row.Job] != g.job {
			err = broken("a timer waits for stage %q of job %s, which is not live", g.row.Name, g.row.Job)
		}
	})
	if err == nil && !inOrder {
		err = broken("the timers are out of order")
	}
	return err
}
