package sched

import (
	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dag"
	"github.com/muster-dev/muster/internal/sched/event"
	"github.com/muster-dev/muster/internal/sched/model"
	"github.com/muster-dev/muster/internal/sched/queue"
)

func (s *State) submit(now muster.Time, ev event.Submit) error {
	if ev.ID != s.nextJob {
		return muster.Errorf(muster.Internal, "job %s cannot be accepted: the next number is %s", ev.ID, s.nextJob)
	}
	spec := ev.Spec
	row := muster.Job{
		ID: ev.ID, UID: ev.UID, Name: spec.Name, Project: spec.Project, Priority: priority(spec), Labels: spec.Labels, Kind: spec.Kind(),
		CreatedAt: now, Owner: ev.Owner, Spec: spec,
	}
	reads := dag.ReferencedStages(spec)
	groups := make([]muster.Group, len(spec.Tasks))
	first := 0
	for i := range spec.Tasks {
		t := &spec.Tasks[i]
		g := &groups[i]
		*g = muster.Group{
			Job: ev.ID, Index: i, Name: t.Name, First: first, Size: t.Size(), UnmaterializedState: muster.Waiting, UnmaterializedSince: now,
			Retained: reads[i] || t.Gang != nil,
		}
		if g.Size < 1 || g.Size > muster.MaxTasks-first {
			return muster.Errorf(muster.InvalidSpec, "stage %q has %d tasks: a job has from 1 to %d", t.Name, g.Size, muster.MaxTasks)
		}
		first += g.Size
		if len(t.Needs) == 0 {
			g.UnmaterializedState = muster.Queued
		}
		g.Counts[g.UnmaterializedState] = int64(g.Size)
		row.Counts[g.UnmaterializedState] += int64(g.Size)
	}
	j, err := model.NewJob(row, groups)
	if err != nil {
		return err
	}
	s.nextJob++
	j.SpecDirty = true
	s.addJob(j)
	s.out.entered = s.out.entered.Add(j.Row.Counts)
	j.Stats.Counts = j.Stats.Counts.Add(row.Counts)
	s.changedJob(j)
	s.touchJob(j)
	for _, g := range j.Groups {
		s.changedGroup(g)
		if g.Row.UnmaterializedState == muster.Queued {
			s.enqueueRest(g)
			s.armGroup(g)
		}
	}
	return nil
}

func priority(spec *muster.Spec) int {
	if spec.Priority == nil {
		return muster.DefaultPriority
	}
	return *spec.Priority
}

// addJob adds a job to the live ones.
func (s *State) addJob(j *model.Job) {
	p := s.projects[j.Row.Project]
	if p == nil {
		p = &queue.Project{Name: j.Row.Project}
		s.projects[p.Name] = p
	}
	p.Jobs++
	j.Project, j.Stats = p, s.statsOf(p.Name)
	s.jobs[j.Row.ID] = j
}
