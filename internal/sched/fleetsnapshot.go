package sched

import (
	"cmp"
	"slices"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sched/queue"
)

// FleetSnapshot returns all workers with what they hold, and the work of all projects. It examines every worker and
// its devices, but not their tasks.
func (s *State) FleetSnapshot(now muster.Time) FleetSnapshot {
	p := FleetSnapshot{At: now, Workers: make([]WorkerSnapshot, len(s.workers)), Failing: s.failingJobs()}
	for i, w := range s.workers {
		p.Workers[i] = workerSnapshot(now, w)
	}
	for _, t := range s.projectStats {
		work := t.workload(now)
		p.All.Add(&work)
	}
	p.All.Oldest = s.oldest(nil)
	return p
}

// Workload returns the work of one project.
func (s *State) Workload(now muster.Time, project string) Workload {
	t := s.projectStats[project]
	if t == nil {
		return Workload{}
	}
	w := t.workload(now)
	if p := s.projects[project]; p != nil {
		w.Oldest = s.oldest(p)
	}
	return w
}

func workerSnapshot(now muster.Time, w *worker) WorkerSnapshot {
	x := WorkerSnapshot{
		ID: w.row.ID, Name: w.row.Name, State: w.row.State, Version: w.row.Version, Price: w.row.Price,
		Running: len(w.held), Load: w.load, Deadline: w.row.Deadline, CleanShutdown: w.cleanShutdown, SeenAt: w.seen,
	}
	if w.reachable() {
		x.Constrained, x.Avoided = w.constrained, w.health.avoidReason(now)
	}
	offers := w.row.Resources
	x.Offers = &offers
	allocated, devices, tasks := w.Usage.Allocated()
	x.Reserved = Resources{Slots: allocated.Slots, CPUs: allocated.CPUs, Memory: allocated.Memory, GPUs: devices, GPUMemory: allocated.GPUMemory}
	x.GPUTasks = tasks
	return x
}

// oldest returns the task of a project that has been queued for longest, or of all projects if p is nil.
func (s *State) oldest(p *queue.Project) *OldestTask {
	it := s.queue.Oldest(p, queuedAt)
	if it == nil {
		return nil
	}
	return &OldestTask{Task: muster.TaskID{Job: it.Job, Num: it.Num}, Name: s.jobs[it.Job].row.Name, QueuedAt: queuedAt(it)}
}

func queuedAt(it *queue.Item) muster.Time {
	switch owner := it.Owner.(type) {
	case *task:
		return owner.row.QueuedAt
	case *group:
		at := owner.row.UnmaterializedSince
		if owner.gang() {
			for _, t := range owner.tasks {
				at = max(at, t.row.QueuedAt)
			}
		}
		return at
	default:
		return 0
	}
}

// recordFailure counts the failed attempts of a live job.
func (s *State) recordFailure(j *job, e *attemptEnd) {
	if e.outcome == muster.AttemptFailed || e.outcome == muster.AttemptTimedOut {
		s.addFailures(j, 1)
	}
}

// recordUsage adds the usage of an attempt that ends to its job.
func (s *State) recordUsage(t *task) {
	if u := t.row.Usage; u != nil && t.row.Grant != nil {
		t.group.job.row.AddUsage(u, len(t.row.Grant.GPUs))
		s.changedJob(t.group.job)
	}
}

func (s *State) addFailures(j *job, n int) {
	j.failures += n
	if j.failures >= minFailures {
		s.failing[j.row.ID] = j
	}
}

func (s *State) failingJobs() []FailingJob {
	list := make([]FailingJob, 0, min(len(s.failing), maxFailing))
	for id, j := range s.failing {
		if len(list) == maxFailing {
			break
		}
		list = append(list, FailingJob{ID: id, Name: j.row.Name, Project: j.row.Project, Failures: j.failures})
	}
	slices.SortFunc(list, func(a, b FailingJob) int { return cmp.Compare(b.ID, a.ID) })
	return list
}

// statsOf returns the counts of a project.
func (s *State) statsOf(project string) *projectStats {
	t := s.projectStats[project]
	if t == nil {
		t = &projectStats{}
		s.projectStats[project] = t
	}
	return t
}

// projectTotals returns the counts of all tasks by project.
func (s *State) projectTotals() map[string]muster.Counts {
	totals := make(map[string]muster.Counts, len(s.projectStats))
	for name, t := range s.projectStats {
		totals[name] = t.counts
	}
	return totals
}

// checkProjectStats checks the counts of each project against its live jobs.
func (s *State) checkProjectStats() error {
	live := map[string]muster.Counts{}
	for _, j := range s.jobs {
		live[j.row.Project] = live[j.row.Project].Add(j.row.Counts)
	}
	for name, t := range s.projectStats {
		for _, state := range muster.TaskStates {
			if have, want := t.counts[state], live[name][state]; have < want || have > want && !state.Final() {
				return broken("project %q counts %d %s tasks, its live jobs have %d", name, have, state, want)
			}
		}
		delete(live, name)
	}
	if len(live) > 0 {
		return broken("%d projects with live jobs are not counted", len(live))
	}
	for id, j := range s.failing {
		if s.jobs[id] != j || j.failures < minFailures {
			return broken("job %s is listed as failing", id)
		}
	}
	return nil
}
