package model

import (
	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dag"
	"github.com/muster-dev/muster/internal/sched/queue"
)

// NewJob makes a job from its rows. It refuses rows that no valid spec has. The job has
// no project yet, and nothing of it is queued or has a timer.
func NewJob(row muster.Job, groups []muster.Group) (*Job, error) {
	spec := row.Spec
	if spec == nil || len(spec.Tasks) == 0 || len(spec.Tasks) != len(groups) {
		return nil, muster.Errorf(muster.InvalidSpec, "job %s has no stages, or not one group per stage", row.ID)
	}
	if row.Priority < muster.MinPriority || row.Priority > muster.MaxPriority {
		return nil, muster.Errorf(muster.InvalidSpec, "priority %d is not between %d and %d", row.Priority, muster.MinPriority, muster.MaxPriority)
	}
	row.Groups, row.Progress = nil, nil
	j := &Job{Row: row, Groups: make([]*Group, len(groups))}
	byName := make(map[string]*Group, len(groups))
	for i := range groups {
		if groups[i].Index != i {
			return nil, muster.Errorf(muster.Internal, "job %s: group %d is at position %d", row.ID, groups[i].Index, i)
		}
		g := &Group{Row: groups[i], Job: j}
		g.Item = queue.Item{Owner: g, Job: row.ID}
		g.Timer.Subject = g
		j.Groups[i], byName[g.Row.Name] = g, g
	}
	needs := make([][]int, len(j.Groups))
	for i, g := range j.Groups {
		for _, name := range spec.Tasks[i].Needs {
			n := byName[name]
			if n == nil {
				return nil, muster.Errorf(muster.InvalidSpec, "stage %q needs %q, which is not a stage of this job", g.Row.Name, name)
			}
			g.Needs, needs[i] = append(g.Needs, n), append(needs[i], n.Row.Index)
			n.Dependents = append(n.Dependents, g)
		}
	}
	order, ok := dag.TopoSort(needs)
	if !ok {
		return nil, muster.Errorf(muster.InvalidSpec, "dependency cycle among the stages of job %q", row.Name)
	}
	for _, i := range order {
		j.Order = append(j.Order, j.Groups[i])
	}
	return j, nil
}

// Group returns the group that has the task of that number, or nil.
func (j *Job) Group(num int) *Group {
	lo, hi := 0, len(j.Groups)
	for lo < hi {
		mid := (lo + hi) / 2
		switch g := j.Groups[mid]; {
		case num < g.Row.First:
			hi = mid
		case num >= g.Row.First+g.Row.Size:
			lo = mid + 1
		default:
			return g
		}
	}
	return nil
}

// RowWithProgress returns the job's row with its derived progress.
func (j *Job) RowWithProgress() muster.Job {
	row := j.Row
	if total := row.Counts.Total(); total > 0 {
		share := float64(row.Counts.Finished()) / float64(total)
		row.Progress = &share
	}
	return row
}
