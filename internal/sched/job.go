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
	j := &job{row: row, groups: make([]*group, len(groups))}
	byName := make(map[string]*group, len(groups))
	for i := range groups {
		if groups[i].Index != i {
			return nil, muster.Errorf(muster.Internal, "job %s: group %d is at position %d", row.ID, groups[i].Index, i)
		}
		g := &group{row: groups[i], job: j}
		g.item = queue.Item{Owner: g, Job: row.ID}
		g.timer.Subject = g
		j.groups[i], byName[g.row.Name] = g, g
	}
	needs := make([][]int, len(j.groups))
	for i, g := range j.groups {
		for _, name := range spec.Tasks[i].Needs {
			n := byName[name]
			if n == nil {
				return nil, muster.Errorf(muster.InvalidSpec, "stage %q needs %q, which is not a stage of this job", g.row.Name, name)
			}
			g.needs, needs[i] = append(g.needs, n), append(needs[i], n.row.Index)
			n.dependents = append(n.dependents, g)
		}
	}
	order, ok := dag.TopoSort(needs)
	if !ok {
		return nil, muster.Errorf(muster.InvalidSpec, "dependency cycle among the stages of job %q", row.Name)
	}
	for _, i := range order {
		j.order = append(j.order, j.groups[i])
	}
	return j, nil
}

// group returns the group that has the task of that number, or nil.
func (j *job) group(num int) *group {
	lo, hi := 0, len(j.groups)
	for lo < hi {
		mid := (lo + hi) / 2
		switch g := j.groups[mid]; {
		case num < g.row.First:
			hi = mid
		case num >= g.row.First+g.row.Size:
			lo = mid + 1
		default:
			return g
		}
	}
	return nil
}

// rowWithProgress returns the job's row with its derived progress.
func (j *job) rowWithProgress() muster.Job {
	row := j.row
	if total := row.Counts.Total(); total > 0 {
		share := float64(row.Counts.Finished()) / float64(total)
		row.Progress = &share
	}
	return row
}

// retryPlan is what is retried of one stage: these rows, and perhaps the unmaterialized elements.
type retryPlan struct {
	rows           []muster.Task // by number
	unmaterialized bool
}

// size returns how many tasks the plan for g retries.
func (p *retryPlan) size(g *group) int {
	if p.unmaterialized {
		return len(p.rows) + g.unmaterialized()
	}
	return len(p.rows)
}

// planRetry chooses what is retried of each stage, and counts it; it changes nothing. It leaves out a stage whose needs
// will not all be met: its tasks would be skipped at once.
func (j *job) planRetry(ev Retry) (plans []retryPlan, n int, err error) {
	plans = make([]retryPlan, len(j.groups))
	for i := range ev.Ended {
		row := &ev.Ended[i]
		g := j.group(row.ID.Num)
		if g == nil || row.ID.Job != j.row.ID {
			return nil, 0, muster.Errorf(muster.NotFound, "job %s has no task %s", j.row.ID, row.ID)
		}
		plans[g.row.Index].rows = append(plans[g.row.Index].rows, *row)
	}
	unsuccessful := make([]int64, len(j.groups)) // tasks that stay without success
	for _, g := range j.order {
		p := &plans[g.row.Index]
		blocked, unblocked := false, false
		for _, need := range g.needs {
			blocked = blocked || unsuccessful[need.row.Index] > 0
			unblocked = unblocked || plans[need.row.Index].size(need) > 0
		}
		if blocked {
			*p = retryPlan{}
		} else {
			p.selectTasks(g, ev.Unmaterialized, unblocked)
		}
		if k := p.size(g); g.gang() && k > 0 && k < g.row.Size {
			return nil, 0, muster.Errorf(muster.Conflict, "stage %q is a gang that is still being stopped: try again when all of its tasks have ended", g.row.Name)
		}
		unsuccessful[g.row.Index] = g.unsuccessful() - int64(p.size(g))
		if unsuccessful[g.row.Index] < 0 {
			return nil, 0, muster.Errorf(muster.Conflict, "job %s has changed meanwhile: try again", j.row.ID)
		}
		n += p.size(g)
	}
	return plans, n, nil
}

// selectTasks keeps the requested rows that ended without success, and adds tasks that
// were skipped because of retried stages, and the other members of a gang.
func (p *retryPlan) selectTasks(g *group, unmaterialized, unblocked bool) {
	wholeGang := g.gang() && len(p.rows) > 0
	ended := g.row.UnmaterializedState.Final() && g.row.UnmaterializedState != muster.Succeeded && g.unmaterialized() > 0
	p.unmaterialized = ended && (unmaterialized || wholeGang || unblocked && g.row.UnmaterializedState == muster.Skipped)
	selected := p.rows[:0]
	for _, row := range p.rows {
		e := row.ID.Num - g.row.First
		known := g.tasks[e]
		switch {
		case known != nil:
			row = known.row
		case e >= g.row.Materialized: // unmaterialized
			if p.unmaterialized || !ended {
				continue
			}
			row.State = g.row.UnmaterializedState
		}
		if row.State.Final() && row.State != muster.Succeeded {
			selected = append(selected, row)
		}
	}
	if unblocked || wholeGang {
		for _, t := range g.sortedTasks() {
			if t.row.State == muster.Skipped || wholeGang && t.row.State.Final() {
				selected = append(selected, t.row)
			}
		}
	}
	slices.SortStableFunc(selected, func(a, b muster.Task) int { return a.ID.Num - b.ID.Num })
	p.rows = slices.CompactFunc(selected, func(a, b muster.Task) bool { return a.ID == b.ID })
}
