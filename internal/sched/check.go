package sched

import (
	"slices"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/place"
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
	live := map[*project]int{}
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
		if p.jobs != n || s.projects[p.name] != p {
			return broken("project %q counts %d live jobs, has %d", p.name, p.jobs, n)
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
	if queued := g.row.Rest == muster.Queued && g.rest() > 0; queued != (g.item.lane != nil) {
		return broken("the rest of stage %q of job %s (%d, %s) is in the queue: %t", g.row.Name, g.row.Job, g.rest(), g.row.Rest, g.item.lane != nil)
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
	switch held := r.State.Held(); {
	case held != (t.worker != nil):
		return broken("task %s is %s, and held by a worker: %t", r.ID, r.State, t.worker != nil)
	case held && (r.Worker != t.worker.row.ID || r.Grant == nil || r.Attempt < 1 || r.AssignedAt == 0):
		return broken("task %s is %s without worker, grant, attempt or time", r.ID, r.State)
	case held && (t.at >= len(t.worker.held) || t.worker.held[t.at] != t):
		return broken("task %s is not among what worker %s holds", r.ID, r.Worker)
	case r.State != muster.Queued && t.item.lane != nil:
		return broken("task %s is %s and in the queue", r.ID, r.State)
	case r.State == muster.Queued && t.item.lane == nil && t.timer.pos == 0:
		return broken("task %s is queued, and neither in the queue nor waiting for a time", r.ID)
	case r.State == muster.Cancelling && t.timer.pos == 0:
		return broken("task %s is being cancelled without an end", r.ID)
	case held && !t.worker.reachable() && t.timer.pos == 0:
		return broken("task %s has a lease without an end", r.ID)
	case r.State.Final() && (r.FinishedAt == 0 || t.timer.pos != 0):
		return broken("task %s has ended without a time, or with a timer", r.ID)
	}
	return nil
}

func (s *State) checkWorkers() error {
	if !slices.IsSortedFunc(s.order, byID) {
		return broken("the workers are not in order")
	}
	listed := 0
	for w := s.latest; w != nil; w = w.older {
		listed++
		if w.older != nil && (w.older.newer != w || w.older.changed >= w.changed) {
			return broken("the list of changes is out of order at worker %s", w.row.ID)
		}
	}
	if listed != len(s.order) {
		return broken("%d workers are in the list of changes, %d are known", listed, len(s.order))
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
		case !book.Equal(w.book):
			return broken("the account of worker %s is wrong", w.row.ID)
		case w.book.Over() && !w.shrunk:
			return broken("worker %s has been given more than it has", w.row.ID)
		case w.gone && len(w.held) > 0:
			return broken("worker %s is gone and holds %d tasks", w.row.ID, len(w.held))
		case !w.gone && w.timer.pos == 0 && (w.reachable() || len(w.held) == 0):
			return broken("nobody notices when worker %s stays away", w.row.ID)
		case (w.row.State == muster.WorkerGone) != w.gone || (w.row.State == muster.WorkerUnreachable) != (!w.gone && !w.reachable()):
			return broken("worker %s is %s; gone: %t, reachable: %t", w.row.ID, w.row.State, w.gone, w.reachable())
		}
	}
	return nil
}

// checkShares counts anew what projects hold and what the fleet offers.
func (s *State) checkShares() error {
	fleet := State{}
	holds := map[string]*project{}
	for _, w := range s.order {
		if !w.gone {
			fleet.count(w, 1)
		}
		for _, t := range w.held {
			name := t.group.job.project.name
			if holds[name] == nil {
				holds[name] = &project{name: name}
			}
			holds[name].hold(t.row.Grant, w, 1)
		}
	}
	if fleet.fleet != s.fleet {
		return broken("the fleet offers %+v, not %+v", fleet.fleet, s.fleet)
	}
	for name, p := range s.projects {
		want := project{name: name}
		if h := holds[name]; h != nil {
			want = *h
		}
		want.jobs = p.jobs
		if want != *p {
			return broken("project %+v holds %+v", *p, want)
		}
	}
	return nil
}

func (s *State) checkQueue() error {
	q := &s.queue
	lanes := map[*line]int{}
	for key, l := range q.lanes {
		if key != l.key || len(l.items) == 0 || q.lines[key.lineKey] != l.line || q.shapes[key.shape.need.Key()] != key.shape {
			return broken("lane %v is filed wrongly, or empty", key.priority)
		}
		if l.parked != slices.Contains(key.shape.parked, l) || l.parked == (l.pos > 0) {
			return broken("a lane is parked: %t, and in its line: %t", l.parked, l.pos > 0)
		}
		for i, it := range l.items {
			if it.pos != i+1 || it.lane != l || i > 0 && it.before(l.items[(i-1)/2]) {
				return broken("a lane is out of order at place %d", i)
			}
			g := it.stage()
			if s.jobs[g.row.Job] != g.job || g.job.row.Priority != key.priority || g.job.project != key.project {
				return broken("a task of job %s stands in a foreign lane", g.row.Job)
			}
			if it.task != nil && (it.task.row.State != muster.Queued || g.tasks[it.task.element()] != it.task) {
				return broken("task %s is in the queue and %s", it.task.row.ID, it.task.row.State)
			}
			if it.task == nil && it.num != g.row.First+g.row.Next {
				return broken("the rest of stage %q of job %s is queued under number %d", g.row.Name, g.row.Job, it.num)
			}
		}
		lanes[l.line]++
	}
	if len(lanes) != len(q.lines) || len(q.aside) > 0 {
		return broken("%d lines are known, %d have lanes; %d tasks are set aside", len(q.lines), len(lanes), len(q.aside))
	}
	for l, n := range lanes {
		if l.all != n || !slices.Contains(q.levels[l.key.priority], l) {
			return broken("a line of project %q counts %d lanes, has %d", l.key.project.name, l.all, n)
		}
	}
	return nil
}

func (s *State) checkTimers() error {
	for i, t := range s.timers {
		if t.pos != i+1 || t.at == 0 || i > 0 && t.before(s.timers[(i-1)/2]) {
			return broken("timer %d is out of order", i)
		}
		if t.task != nil && s.task(t.task.row.ID) != t.task {
			return broken("a timer waits for task %s, which is not in memory", t.task.row.ID)
		}
		if t.group != nil && s.jobs[t.group.row.Job] != t.group.job {
			return broken("a timer waits for stage %q of job %s, which is not live", t.group.row.Name, t.group.row.Job)
		}
	}
	return nil
}
