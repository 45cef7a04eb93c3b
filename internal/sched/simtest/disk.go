package simtest

import (
	"cmp"
	"maps"
	"slices"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sched/inflight"
)

// disk is what survives a crash of the server: committed rows by key.
type disk struct {
	jobs     map[muster.JobID]muster.Job
	groups   map[groupKey]muster.Group
	tasks    map[muster.TaskID]muster.Task
	attempts map[muster.AttemptID]muster.Attempt
	workers  map[muster.WorkerID]muster.Worker
	totals   map[string]muster.Counts
	cache    map[inflight.Key]muster.CacheEntry
	removed  map[muster.JobID]bool // jobs that retention removed; their rows stay for checks
	late     int
	next     muster.JobID // if numbers were skipped
}

type groupKey struct {
	job   muster.JobID
	index int
}

func newDisk() *disk {
	return &disk{
		jobs: map[muster.JobID]muster.Job{}, groups: map[groupKey]muster.Group{}, tasks: map[muster.TaskID]muster.Task{},
		attempts: map[muster.AttemptID]muster.Attempt{}, workers: map[muster.WorkerID]muster.Worker{}, totals: map[string]muster.Counts{}, removed: map[muster.JobID]bool{},
		cache: map[inflight.Key]muster.CacheEntry{},
	}
}

func (d *disk) commit(r muster.Rows) {
	for _, j := range r.Jobs {
		if j.Spec == nil {
			j.Spec = d.jobs[j.ID].Spec
		}
		j.Groups = nil
		d.jobs[j.ID] = j
	}
	for _, g := range r.Groups {
		d.groups[groupKey{g.Job, g.Index}] = g
	}
	for _, t := range r.Tasks {
		d.tasks[t.ID] = t
	}
	for _, a := range r.Attempts {
		d.attempts[a.ID] = a
	}
	for _, w := range r.Workers {
		d.workers[w.ID] = w
	}
	for _, id := range r.RemovedWorkers {
		delete(d.workers, id)
	}
	for _, t := range r.Totals {
		if d.totals[t.Project] = t.Counts; t.Counts == (muster.Counts{}) {
			delete(d.totals, t.Project)
		}
	}
	d.late += len(r.LateReports)
	d.next = max(d.next, r.NextJob)
}

// load returns the Snapshot that a store would load.
func (d *disk) load() muster.Snapshot {
	s := muster.Snapshot{NextJob: 1, Totals: maps.Clone(d.totals)}
	for _, id := range slices.Sorted(maps.Keys(d.jobs)) {
		s.NextJob = id + 1
		if !d.jobs[id].State.Final() {
			s.Jobs = append(s.Jobs, d.jobs[id])
		}
	}
	s.NextJob = max(s.NextJob, d.next)
	for _, j := range s.Jobs {
		s.Groups = append(s.Groups, d.groupsOf(j.ID)...)
	}
	for _, g := range s.Groups {
		for n := g.First; n < g.First+g.Size; n++ {
			t, ok := d.tasks[muster.TaskID{Job: g.Job, Num: n}]
			if ok && (!t.State.Final() || g.Retained || n >= g.First+g.Materialized) {
				s.Tasks = append(s.Tasks, t)
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(d.workers)) {
		s.Workers = append(s.Workers, d.workers[id])
	}
	return s
}

func (d *disk) sortedGroups() []muster.Group {
	return slices.SortedFunc(maps.Values(d.groups), func(a, b muster.Group) int {
		return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.Index, b.Index))
	})
}

func (d *disk) sortedTasks() []muster.Task {
	return slices.SortedFunc(maps.Values(d.tasks), func(a, b muster.Task) int { return compareTasks(a.ID, b.ID) })
}

func compareTasks(a, b muster.TaskID) int {
	return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.Num, b.Num))
}

// groupOf returns the group of a task by its number.
func (d *disk) groupOf(id muster.TaskID) (muster.Group, bool) {
	for i := 0; ; i++ {
		g, ok := d.groups[groupKey{id.Job, i}]
		if !ok || id.Num < g.First+g.Size {
			return g, ok
		}
	}
}

// stateOf returns the state of any task, with or without a row.
func (d *disk) stateOf(id muster.TaskID) muster.TaskState {
	if t, ok := d.tasks[id]; ok {
		return t.State
	}
	g, _ := d.groupOf(id)
	return g.UnmaterializedState
}

// retry returns what the engine would read for a retry of a whole job.
func (d *disk) retry(id muster.JobID) (job muster.Job, groups []muster.Group, ended, kept []muster.Task) {
	for _, g := range d.sortedGroups() {
		if g.Job == id {
			groups = append(groups, g)
		}
	}
	for _, t := range d.sortedTasks() {
		switch {
		case t.Job != id:
		case t.State.Final() && t.State != muster.Succeeded:
			ended = append(ended, t)
		case groups[t.Group].Retained:
			kept = append(kept, t)
		}
	}
	return d.jobs[id], groups, ended, kept
}
