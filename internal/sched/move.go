package sched

import (
	"fmt"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sched/queue"
)

// move is the one function by which tasks change their state: n tasks of g, from
// one state to another. It keeps all counts. An illegal move is a bug, and going
// on would spread it: it panics.
func (s *State) move(g *group, from, to muster.TaskState, n int) {
	if !from.CanBecome(to) {
		panic(fmt.Sprintf("sched: a task of job %s, stage %q, cannot become %s: it is %s", g.row.Job, g.row.Name, to, from))
	}
	g.row.Counts[from] -= int64(n)
	g.row.Counts[to] += int64(n)
	g.job.row.Counts[from] -= int64(n)
	g.job.row.Counts[to] += int64(n)
	s.changedGroup(g)
	s.changedJob(g.job)
	s.touchJob(g.job)
	if to.Final() && len(g.readers) > 0 {
		s.touchGroup(g)
	}
}

func (s *State) touchJob(j *job) {
	if !j.touched {
		j.touched = true
		s.touchedJobs = append(s.touchedJobs, j)
	}
}

func (s *State) touchGroup(g *group) {
	if !g.touched {
		g.touched = true
		s.touchedGroups = append(s.touchedGroups, g)
	}
}

// set moves one task that has a row. What else changes in the row must be there
// already. A task that is final leaves memory, unless it is kept.
func (s *State) set(now muster.Time, t *task, to muster.TaskState) {
	s.move(t.group, t.row.State, to, 1)
	t.row.State = to
	s.changedTask(t)
	s.publishTask(now, t)
	if g := t.group; to.Final() && !g.row.Kept && t.element() < g.row.Next {
		delete(g.tasks, t.element())
	}
	s.armTask(t)
}

// moveRest moves all elements that have no row of their own at once.
func (s *State) moveRest(now muster.Time, g *group, to muster.TaskState, why muster.Reason, message string) {
	n := g.rest()
	if n == 0 {
		return
	}
	s.move(g, g.row.Rest, to, n)
	g.row.Rest, g.row.RestAt, g.row.Reason, g.row.Message = to, now, why, message
	if to == muster.Queued {
		s.enqueueRest(g)
	} else if g.item.Queued() {
		s.queue.Remove(&g.item)
	}
	s.armGroup(g)
}

// single gives an element of the rest a row of its own, in the state of the rest.
func (s *State) single(g *group, element int) *task {
	t := &task{row: muster.Task{
		ID: muster.TaskID{Job: g.row.Job, Num: g.row.First + element}, Job: g.row.Job, Index: g.row.First + element,
		Group: g.row.Index, Name: g.row.Name, Kind: g.spec().Kind, Element: g.spec().Element(element),
		State: g.row.Rest, Reason: g.row.Reason, Message: g.row.Message, CreatedAt: g.job.row.CreatedAt,
	}}
	switch {
	case g.row.Rest == muster.Queued:
		t.row.QueuedAt = g.row.RestAt
	case g.row.Rest.Final():
		t.row.FinishedAt = g.row.RestAt
	}
	g.adopt(t)
	if element == g.row.Next {
		g.pass()
	}
	if g.item.Queued() {
		s.requeueRest(g)
	}
	s.changedGroup(g)
	s.changedTask(t)
	return t
}

// adopt puts a task that has a row into its group.
func (g *group) adopt(t *task) {
	t.group = g
	t.item = queue.Item{Owner: t, Job: t.row.ID.Job, Num: t.row.ID.Num}
	t.timer.Of = t
	if g.tasks == nil {
		g.tasks = map[int]*task{}
	}
	g.tasks[t.element()] = t
	if t.element() >= g.row.Next {
		g.ahead++
	}
}

// pass moves Next over the elements that have rows already.
func (g *group) pass() {
	for g.ahead > 0 {
		t := g.tasks[g.row.Next]
		if t == nil {
			return
		}
		if t.row.State.Final() && !g.row.Kept {
			delete(g.tasks, g.row.Next)
		}
		g.row.Next++
		g.ahead--
	}
}

// settle draws the conclusions of what was moved: stages that became ready or
// will never be, jobs whose state changed, jobs that ended.
func (s *State) settle(now muster.Time) {
	for len(s.touchedGroups) > 0 {
		g := s.touchedGroups[0]
		s.touchedGroups = s.touchedGroups[1:]
		g.touched = false
		for _, r := range g.readers {
			s.advance(now, r)
		}
	}
	s.touchedGroups = nil
	for _, j := range s.touchedJobs {
		j.touched = false
		if state := j.row.Counts.State(); state != j.row.State {
			j.row.State = state
			j.row.FinishedAt = 0
			if state.Final() {
				j.row.FinishedAt = now
			}
			s.changedJob(j)
			s.publishJob(now, j)
		}
		if j.row.State.Final() {
			s.unload(j)
		}
	}
	s.touchedJobs = s.touchedJobs[:0]
}

// unload takes a job that has ended out of memory.
func (s *State) unload(j *job) {
	delete(s.jobs, j.row.ID)
	j.project.Jobs--
	if j.project.Jobs == 0 {
		delete(s.projects, j.project.Name)
	}
}

// advance looks whether a stage that waits became ready, or never will be.
func (s *State) advance(now muster.Time, g *group) {
	if g.row.Counts[muster.Waiting] == 0 {
		return
	}
	all := true
	for _, n := range g.needs {
		if n.missed() > 0 {
			s.moveWaiting(now, g, muster.Skipped, muster.NeedNotMet, fmt.Sprintf("stage %q, which it needs, did not succeed", n.row.Name))
			return
		}
		all = all && n.succeeded()
	}
	if !all {
		return
	}
	if why, err := s.resolve(g); err != nil {
		s.moveWaiting(now, g, muster.Failed, why, err.Error())
		return
	}
	s.changedGroup(g)
	s.moveWaiting(now, g, muster.Queued, muster.NoReason, "")
}

// moveWaiting moves all waiting tasks of a stage.
func (s *State) moveWaiting(now muster.Time, g *group, to muster.TaskState, why muster.Reason, message string) {
	if int64(g.rest()) < g.row.Counts[muster.Waiting] || g.row.Rest != muster.Waiting {
		for _, t := range g.elements() {
			if t.row.State != muster.Waiting {
				continue
			}
			t.row.Reason, t.row.Message = why, message
			if to == muster.Queued {
				t.row.QueuedAt = now
			} else {
				t.row.FinishedAt = now
			}
			s.set(now, t, to)
			if to == muster.Queued {
				s.enqueue(t)
			}
		}
	}
	if g.row.Rest == muster.Waiting {
		s.moveRest(now, g, to, why, message)
	}
	if g.gang() {
		s.lineUp(now, g)
	}
}
