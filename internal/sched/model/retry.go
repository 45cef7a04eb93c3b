package model

import (
	"slices"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sched/event"
)

// RetryPlan is what is retried of one stage: these rows, and perhaps the unmaterialized elements.
type RetryPlan struct {
	Rows           []muster.Task // by number
	Unmaterialized bool
}

// Size returns how many tasks the plan for g retries.
func (p *RetryPlan) Size(g *Group) int {
	if p.Unmaterialized {
		return len(p.Rows) + g.Unmaterialized()
	}
	return len(p.Rows)
}

// PlanRetry chooses what is retried of each stage, and counts it; it changes nothing. It leaves out a stage whose needs
// will not all be met: its tasks would be skipped at once.
func (j *Job) PlanRetry(ev event.Retry) (plans []RetryPlan, n int, err error) {
	plans = make([]RetryPlan, len(j.Groups))
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
			*p = RetryPlan{}
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
func (p *RetryPlan) selectTasks(g *Group, unmaterialized, unblocked bool) {
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
