package sched_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sched"
)

// memStore keeps committed rows as a store does.
type memStore struct {
	next     muster.JobID
	jobs     map[muster.JobID]muster.Job
	groups   map[muster.JobID]map[int]muster.Group
	tasks    map[muster.TaskID]muster.Task
	attempts map[muster.AttemptID]muster.Attempt
	late     []muster.LateReport
	workers  map[muster.WorkerID]muster.Worker
	totals   map[string]muster.Counts
}

func newMemStore() *memStore {
	return &memStore{
		next: 1, jobs: map[muster.JobID]muster.Job{}, groups: map[muster.JobID]map[int]muster.Group{}, tasks: map[muster.TaskID]muster.Task{},
		attempts: map[muster.AttemptID]muster.Attempt{}, workers: map[muster.WorkerID]muster.Worker{}, totals: map[string]muster.Counts{},
	}
}

// commit refuses what the checks of a database would refuse.
func (m *memStore) commit(r muster.Rows) error {
	for _, j := range r.Jobs {
		if j.State.Final() != (j.FinishedAt != 0) || j.State != j.Counts.State() {
			return fmt.Errorf("job %s is %s, finished at %d", j.ID, j.State, j.FinishedAt)
		}
	}
	for _, g := range r.Groups {
		if g.Counts.Total() != int64(g.Size) || slices.Min(g.Counts[:]) < 0 || g.UnmaterializedState.HoldsResources() || g.Materialized < 0 || g.Materialized > g.Size {
			return fmt.Errorf("group %d of job %s does not add up: %+v", g.Index, g.Job, g)
		}
	}
	for _, a := range r.Attempts {
		m.attempts[a.ID] = a
	}
	for _, t := range r.Tasks {
		old, known := m.tasks[t.ID]
		switch {
		case t.State.Final() != (t.FinishedAt != 0), t.State.HoldsResources() && (t.Worker == "" || t.Attempt < 1 || t.Grant == nil && t.State != muster.Running):
			return fmt.Errorf("task %s is %s: %+v", t.ID, t.State, t)
		case known && (t.Attempt < old.Attempt || t.Attempt > old.Attempt+1 && m.attempts[muster.AttemptID{Task: t.ID, N: t.Attempt - 1}].FinishedAt == 0):
			return fmt.Errorf("task %s went from attempt %d to %d", t.ID, old.Attempt, t.Attempt)
		}
	}
	for _, j := range r.Jobs {
		if j.Spec == nil {
			j.Spec = m.jobs[j.ID].Spec
		} else {
			m.next = max(m.next, j.ID+1)
		}
		m.jobs[j.ID] = j
	}
	for _, g := range r.Groups {
		if m.groups[g.Job] == nil {
			m.groups[g.Job] = map[int]muster.Group{}
		}
		m.groups[g.Job][g.Index] = g
	}
	for _, t := range r.Tasks {
		m.tasks[t.ID] = t
	}
	m.late = append(m.late, r.LateReports...)
	for _, w := range r.Workers {
		m.workers[w.ID] = w
	}
	for _, id := range r.RemovedWorkers {
		delete(m.workers, id)
	}
	for _, t := range r.Totals {
		if m.totals[t.Project] = t.Counts; t.Counts == (muster.Counts{}) {
			delete(m.totals, t.Project)
		}
	}
	return nil
}

func (m *memStore) groupsOf(id muster.JobID) []muster.Group {
	var list []muster.Group
	for i := range len(m.groups[id]) {
		list = append(list, m.groups[id][i])
	}
	return list
}

// inSnapshot reports whether a row belongs into a snapshot of its live job.
func (m *memStore) inSnapshot(t *muster.Task) bool {
	g := m.groups[t.Job][t.Group]
	return !t.State.Final() || g.Retained || t.ID.Num >= g.First+g.Materialized
}

func (m *memStore) snapshot() muster.Snapshot {
	snap := muster.Snapshot{NextJob: m.next, Totals: maps.Clone(m.totals)}
	for _, id := range slices.Sorted(maps.Keys(m.jobs)) {
		j := m.jobs[id]
		if !j.State.Final() {
			snap.Jobs = append(snap.Jobs, j)
			snap.Groups = append(snap.Groups, m.groupsOf(id)...)
			for _, t := range m.rows(id) {
				if m.inSnapshot(&t) {
					snap.Tasks = append(snap.Tasks, t)
				}
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(m.workers)) {
		snap.Workers = append(snap.Workers, m.workers[id])
	}
	return snap
}

// rows returns the task rows of a job by number.
func (m *memStore) rows(id muster.JobID) []muster.Task {
	var list []muster.Task
	for _, t := range m.tasks {
		if t.Job == id {
			list = append(list, t)
		}
	}
	slices.SortFunc(list, func(a, b muster.Task) int { return cmp.Compare(a.ID.Num, b.ID.Num) })
	return list
}

// allTasks returns all tasks of a job; those without rows are generated.
func (m *memStore) allTasks(id muster.JobID) []muster.Task {
	var list []muster.Task
	for _, g := range m.groupsOf(id) {
		for num := g.First; num < g.First+g.Size; num++ {
			t, ok := m.tasks[muster.TaskID{Job: id, Num: num}]
			if !ok {
				t = muster.Task{
					ID: muster.TaskID{Job: id, Num: num}, Job: id, Index: num, Group: g.Index, Name: g.Name, State: g.UnmaterializedState,
					Reason: g.Reason, Message: g.Message, Synthesized: true,
				}
			}
			list = append(list, t)
		}
	}
	return list
}

// retry makes the event by which the tasks within spans, or all, are retried.
func (m *memStore) retry(id muster.JobID, spans []muster.Span) sched.Retry {
	j := m.jobs[id]
	ev := sched.Retry{Job: j, Groups: m.groupsOf(id), Unmaterialized: spans == nil}
	for _, t := range m.allTasks(id) {
		asked := spans == nil && !t.Synthesized
		for _, s := range spans {
			asked = asked || s.First <= t.ID.Num && t.ID.Num <= s.Last
		}
		switch {
		case asked && t.State.Final() && t.State != muster.Succeeded:
			ev.Ended = append(ev.Ended, t)
		case !t.Synthesized && m.inSnapshot(&t):
			ev.Kept = append(ev.Kept, t)
		}
	}
	return ev
}
