package sched

import (
	"cmp"
	"slices"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sched/fleet"
	"github.com/muster-dev/muster/internal/sched/judge"
	"github.com/muster-dev/muster/internal/sched/model"
	"github.com/muster-dev/muster/internal/sched/queue"
)

// Picture returns all workers with what they hold, and the work of all projects. It costs a look at every worker and
// its devices, whatever these hold.
func (s *State) Picture(now muster.Time) fleet.Picture {
	p := fleet.Picture{At: now, Workers: make([]fleet.Worker, len(s.order)), Failing: s.failingJobs()}
	for i, w := range s.order {
		p.Workers[i] = pictured(now, w)
	}
	for _, t := range s.tallies {
		work := t.Work(now)
		p.All.Add(&work)
	}
	p.All.Oldest = s.oldest(nil)
	return p
}

// Work returns the work of one project.
func (s *State) Work(now muster.Time, project string) fleet.Work {
	t := s.tallies[project]
	if t == nil {
		return fleet.Work{}
	}
	w := t.Work(now)
	if p := s.projects[project]; p != nil {
		w.Oldest = s.oldest(p)
	}
	return w
}

func pictured(now muster.Time, w *model.Worker) fleet.Worker {
	x := fleet.Worker{
		ID: w.Row.ID, Name: w.Row.Name, State: w.Row.State, Version: w.Row.Version, Price: w.Row.Price,
		Running: len(w.Held), Load: w.Load, Deadline: w.Row.Deadline, Left: w.Left, SeenAt: w.Seen,
	}
	if w.Reachable() {
		x.Constrained, x.Avoided = w.Constrained, w.Health.Closed(now)
	}
	offers := w.Row.Resources
	x.Offers = &offers
	taken, devices, tasks := w.Book.Taken()
	x.Reserved = fleet.Amounts{Slots: taken.Slots, CPUs: taken.CPUs, Memory: taken.Memory, GPUs: devices, GPUMemory: taken.GPUMemory}
	x.GPUTasks = tasks
	return x
}

// oldest returns what has been queued for longest of a project, or of all if p is nil.
func (s *State) oldest(p *queue.Project) *fleet.Oldest {
	it := s.queue.Oldest(p, queuedAt)
	if it == nil {
		return nil
	}
	return &fleet.Oldest{Task: muster.TaskID{Job: it.Job, Num: it.Num}, Name: s.jobs[it.Job].Row.Name, QueuedAt: queuedAt(it)}
}

func queuedAt(it *queue.Item) muster.Time {
	switch owner := it.Owner.(type) {
	case *model.Task:
		return owner.Row.QueuedAt
	case *model.Group:
		at := owner.Row.UnmaterializedSince
		if owner.Gang() {
			for _, t := range owner.Tasks {
				at = max(at, t.Row.QueuedAt)
			}
		}
		return at
	default:
		return 0
	}
}

// noteFailure counts the failed attempts of a live job.
func (s *State) noteFailure(j *model.Job, e *judge.Ending) {
	if e.Outcome == muster.AttemptFailed || e.Outcome == muster.AttemptTimedOut {
		s.failed(j, 1)
	}
}

// noteUsage adds what an attempt used that ends to its job's account.
func (s *State) noteUsage(t *model.Task) {
	if u := t.Row.Usage; u != nil && t.Row.Grant != nil {
		t.Group.Job.Row.AddUsage(u, len(t.Row.Grant.GPUs))
		s.changedJob(t.Group.Job)
	}
}

func (s *State) failed(j *model.Job, n int) {
	j.Failures += n
	if j.Failures >= fleet.MinFailures {
		s.failing[j.Row.ID] = j
	}
}

func (s *State) failingJobs() []fleet.Job {
	list := make([]fleet.Job, 0, min(len(s.failing), fleet.MaxFailing))
	for id, j := range s.failing {
		if len(list) == fleet.MaxFailing {
			break
		}
		list = append(list, fleet.Job{ID: id, Name: j.Row.Name, Project: j.Row.Project, Failures: j.Failures})
	}
	slices.SortFunc(list, func(a, b fleet.Job) int { return cmp.Compare(b.ID, a.ID) })
	return list
}

// tally returns the counts of a project.
func (s *State) tally(project string) *fleet.Tally {
	t := s.tallies[project]
	if t == nil {
		t = &fleet.Tally{}
		s.tallies[project] = t
	}
	return t
}

// totals returns the counts of all tasks by project.
func (s *State) totals() map[string]muster.Counts {
	totals := make(map[string]muster.Counts, len(s.tallies))
	for name, t := range s.tallies {
		totals[name] = t.Counts
	}
	return totals
}

// checkTallies holds that the counts of each project are those of its live jobs, as far as these go.
func (s *State) checkTallies() error {
	live := map[string]muster.Counts{}
	for _, j := range s.jobs {
		live[j.Row.Project] = live[j.Row.Project].Add(j.Row.Counts)
	}
	for name, t := range s.tallies {
		for _, state := range muster.TaskStates {
			if have, want := t.Counts[state], live[name][state]; have < want || have > want && !state.Final() {
				return broken("project %q counts %d %s tasks, its live jobs have %d", name, have, state, want)
			}
		}
		delete(live, name)
	}
	if len(live) > 0 {
		return broken("%d projects with live jobs are not counted", len(live))
	}
	for id, j := range s.failing {
		if s.jobs[id] != j || j.Failures < fleet.MinFailures {
			return broken("job %s is listed as failing", id)
		}
	}
	return nil
}
