package sched

import (
	"slices"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dag"
	"github.com/muster-dev/muster/internal/sched/queue"
)

// newJob makes a job from its rows. It refuses rows that no valid spec has. The job has
// no project yet, and nothing of it is queued or has a timer.
func newJob(row muster.Job, groups []muster.Group) (*job, error) {
	spec := row.Spec
	if spec == nil || len(spec.Tasks) == 0 || len(spec.Tasks) != len(groups) {
		return nil, muster.Errorf(muster.InvalidSpec, "job %s has no stages, or not one group per stage", row.ID)
	}
	if row.Priority < muster.MinPriority || row.Priority > muster.MaxPriority {
		return nil, muster.Errorf(muster.InvalidSpec, "priority %d is not between %d and %d", row.Priority, muster.MinPriority, muster.MaxPriority)
	}
	row.Groups, row.Progress = nil, nil
	j := &job{Row: row, Groups: make([]*group, len(groups))}
	byName := make(map[string]*group, len(groups))
	for i := range groups {
		if groups[i].Index != i {
			return nil, muster.Errorf(muster.Internal, "job %s: group %d is at position %d", row.ID, groups[i].Index, i)
		}
		g := &group{Row: groups[i], Job: j}
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

// group returns the group that has the task of that number, or nil.
func (j *job) Group(num int) *group {
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
func (j *job) RowWithProgress() muster.Job {
	row := j.Row
	if total := row.Counts.Total(); total > 0 {
		share := float64(row.Counts.Finished()) / float64(total)
		row.Progress = &share
	}
	return row
}

// retryPlan is what is retried of one stage: these rows, and perhaps the unmaterialized elements.
type retryPlan struct {
	Rows           []muster.Task // by number
	Unmaterialized bool
}

// Size returns how many tasks the plan for g retries.
func (p *retryPlan) Size(g *group) int {
	if p.Unmaterialized {
		return len(p.Rows) + g.Unmaterialized()
	}
	return len(p.Rows)
}

// PlanRetry chooses what is retried of each stage, and counts it; it changes nothing. It leaves out a stage whose needs
// will not all be met: its tasks would be skipped at once.
func (j *job) PlanRetry(ev Retry) (plans []retryPlan, n int, err error) {
	plans = make([]retryPlan, len(j.Groups))
	for i := range ev.Ended {
		row := &ev.Ended[i]
		g := j.Group(row.ID.Num)
		if g == nil || row.ID.Job != j.Row.ID {
			return nil, 0, muster.Errorf(muster.NotFound, "job %s has no task %s", j.Row.ID, row.ID)
		}
		plans[g.Row.Index].Rows = append(plans[g.Row.Index].Rows, *row)
	}
	unsuccessful := make([]int64, len(j.Groups)) // tasks that stay without success
	for _, g := range j.Order {
		p := &plans[g.Row.Index]
		blocked, unblocked := false, false
		for _, need := range g.Needs {
			blocked = blocked || unsuccessful[need.Row.Index] > 0
			unblocked = unblocked || plans[need.Row.Index].Size(need) > 0
		}
		if blocked {
			*p = retryPlan{}
		} else {
			p.selectTasks(g, ev.Unmaterialized, unblocked)
		}
		if k := p.Size(g); g.Gang() && k > 0 && k < g.Row.Size {
			return nil, 0, muster.Errorf(muster.Conflict, "stage %q is a gang that is still being stopped: try again when all of its tasks have ended", g.Row.Name)
		}
		unsuccessful[g.Row.Index] = g.Unsuccessful() - int64(p.Size(g))
		if unsuccessful[g.Row.Index] < 0 {
			return nil, 0, muster.Errorf(muster.Conflict, "job %s has changed meanwhile: try again", j.Row.ID)
		}
		n += p.Size(g)
	}
	return plans, n, nil
}

// selectTasks keeps the requested rows that ended without success, and adds tasks that
// were skipped because of retried stages, and the other members of a gang.
func (p *retryPlan) selectTasks(g *group, unmaterialized, unblocked bool) {
	wholeGang := g.Gang() && len(p.Rows) > 0
	ended := g.Row.UnmaterializedState.Final() && g.Row.UnmaterializedState != muster.Succeeded && g.Unmaterialized() > 0
	p.Unmaterialized = ended && (unmaterialized || wholeGang || unblocked && g.Row.UnmaterializedState == muster.Skipped)
	selected := p.Rows[:0]
	for _, row := range p.Rows {
		e := row.ID.Num - g.Row.First
		known := g.Tasks[e]
		switch {
		case known != nil:
			row = known.Row
		case e >= g.Row.Materialized: // unmaterialized
			if p.Unmaterialized || !ended {
				continue
			}
			row.State = g.Row.UnmaterializedState
		}
		if row.State.Final() && row.State != muster.Succeeded {
			selected = append(selected, row)
		}
	}
	if unblocked || wholeGang {
		for _, t := range g.SortedTasks() {
			if t.Row.State == muster.Skipped || wholeGang && t.Row.State.Final() {
				selected = append(selected, t.Row)
			}
		}
	}
	slices.SortStableFunc(selected, func(a, b muster.Task) int { return a.ID.Num - b.ID.Num })
	p.Rows = slices.CompactFunc(selected, func(a, b muster.Task) bool { return a.ID == b.ID })
}
