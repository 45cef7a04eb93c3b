package sched

import (
	"fmt"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/flow"
	"github.com/muster-dev/muster/internal/sched/effect"
	"github.com/muster-dev/muster/internal/sched/event"
	"github.com/muster-dev/muster/internal/sched/queue"
)

func (s *State) submit(now muster.Time, ev event.Submit) error {
	if ev.ID != s.next {
		return muster.Errorf(muster.Internal, "job %s cannot be accepted: the next number is %s", ev.ID, s.next)
	}
	spec := ev.Spec
	row := muster.Job{
		ID: ev.ID, Name: spec.Name, Project: spec.Project, Priority: priority(spec), Labels: spec.Labels, Kind: spec.Kind(),
		CreatedAt: now, Owner: ev.Owner, Spec: spec,
	}
	reads := flow.Reads(spec)
	groups := make([]muster.Group, len(spec.Tasks))
	first := 0
	for i := range spec.Tasks {
		t := &spec.Tasks[i]
		g := &groups[i]
		*g = muster.Group{
			Job: ev.ID, Index: i, Name: t.Name, First: first, Size: t.Size(), Rest: muster.Waiting, RestAt: now,
			Kept: reads[i] || t.Gang != nil,
		}
		if g.Size < 1 || g.Size > muster.MaxArray-first {
			return muster.Errorf(muster.InvalidSpec, "stage %q has %d tasks: a job has from 1 to %d", t.Name, g.Size, muster.MaxArray)
		}
		first += g.Size
		if len(t.Needs) == 0 {
			g.Rest = muster.Queued
		}
		g.Counts[g.Rest] = int64(g.Size)
		row.Counts[g.Rest] += int64(g.Size)
	}
	j, err := newJob(row, groups)
	if err != nil {
		return err
	}
	s.next++
	j.fresh = true
	s.load(j)
	s.changedJob(j)
	s.touchJob(j)
	for _, g := range j.groups {
		s.changedGroup(g)
		if g.row.Rest == muster.Queued {
			s.enqueueRest(g)
			s.armGroup(g)
		}
	}
	return nil
}

func priority(spec *muster.Spec) int {
	if spec.Priority == nil {
		return muster.UsualPriority
	}
	return *spec.Priority
}

// newJob wires a job of its rows. It refuses what no valid spec has, so that the
// rest of the package may rely on it.
func newJob(row muster.Job, groups []muster.Group) (*job, error) {
	spec := row.Spec
	if spec == nil || len(spec.Tasks) == 0 || len(spec.Tasks) != len(groups) {
		return nil, muster.Errorf(muster.InvalidSpec, "job %s has no stage, or not one group for each", row.ID)
	}
	if row.Priority < muster.MinPriority || row.Priority > muster.MaxPriority {
		return nil, muster.Errorf(muster.InvalidSpec, "priority %d is not from %d to %d", row.Priority, muster.MinPriority, muster.MaxPriority)
	}
	row.Groups, row.Progress = nil, nil
	j := &job{row: row, groups: make([]*group, len(groups))}
	named := make(map[string]*group, len(groups))
	for i := range groups {
		if groups[i].Index != i {
			return nil, muster.Errorf(muster.Internal, "job %s: group %d stands at place %d", row.ID, groups[i].Index, i)
		}
		g := &group{row: groups[i], job: j}
		g.item = queue.Item{Owner: g, Job: row.ID}
		g.timer.Of = g
		j.groups[i], named[g.row.Name] = g, g
	}
	needs := make([][]int, len(j.groups))
	for i, g := range j.groups {
		for _, name := range spec.Tasks[i].Needs {
			n := named[name]
			if n == nil {
				return nil, muster.Errorf(muster.InvalidSpec, "stage %q needs %q, which is no stage of this job", g.row.Name, name)
			}
			g.needs, needs[i] = append(g.needs, n), append(needs[i], n.row.Index)
			n.readers = append(n.readers, g)
		}
	}
	order, ok := flow.Order(needs)
	if !ok {
		return nil, muster.Errorf(muster.InvalidSpec, "the stages of job %q need each other in a circle", row.Name)
	}
	for _, i := range order {
		j.order = append(j.order, j.groups[i])
	}
	return j, nil
}

// load brings a job into memory.
func (s *State) load(j *job) {
	p := s.projects[j.row.Project]
	if p == nil {
		p = &queue.Project{Name: j.row.Project}
		s.projects[p.Name] = p
	}
	p.Jobs++
	j.project = p
	s.jobs[j.row.ID] = j
}

// resolve finds what a stage takes from those it needs, which have all
// succeeded: values for its ${…} and artifacts for its inputs.
func (s *State) resolve(g *group) (muster.Reason, error) {
	result := func(stage, element int) (muster.Task, bool) {
		t := g.job.groups[stage].tasks[element]
		if t == nil {
			return muster.Task{}, false
		}
		return t.row, true
	}
	spec := g.job.row.Spec
	if g.row.Resolved == nil {
		resolved, err := flow.Resolve(spec, g.row.Index, result)
		if err != nil {
			return muster.BadReference, err
		}
		g.row.Resolved = resolved
	}
	placed, err := flow.Inputs(spec, g.row.Index, result)
	if err != nil {
		return muster.ArtifactMissing, fmt.Errorf("inputs: %w", err)
	}
	g.inputs = nil
	for _, p := range placed {
		g.inputs = append(g.inputs, effect.Input(p))
	}
	return muster.NoReason, nil
}
