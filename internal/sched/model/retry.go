package model

import (
	"slices"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sched/event"
)

// RetryPlan is what is tried again of one stage: the tasks with these rows, and the rest.
type RetryPlan struct {
	Rows []muster.Task // by number
	Rest bool
}

// Size returns how many tasks the plan for g tries again.
func (p *RetryPlan) Size(g *Group) int {
	if p.Rest {
		return len(p.Rows) + g.Rest()
	}
	return len(p.Rows)
}

// PlanRetry chooses what is tried again of each stage, and counts it; it changes nothing. A stage whose needs will
// not all be met is left out: its tasks would be skipped at once.
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
	missed := make([]int64, len(j.Groups)) // tasks without success that stay so
	for _, g := range j.Order {
		p := &plans[g.Row.Index]
		blocked, freed := false, false
		for _, need := range g.Needs {
			blocked = blocked || missed[need.Row.Index] > 0
			freed = freed || plans[need.Row.Index].Size(need) > 0
		}
		if blocked {
			*p = RetryPlan{}
		} else {
			p.choose(g, ev.Rest, freed)
		}
		if k := p.Size(g); g.Gang() && k > 0 && k < g.Row.Size {
			return nil, 0, muster.Errorf(muster.Conflict, "stage %q is a gang that is still being stopped: try again when all of its tasks have ended", g.Row.Name)
		}
		missed[g.Row.Index] = g.Missed() - int64(p.Size(g))
		if missed[g.Row.Index] < 0 {
			return nil, 0, muster.Errorf(muster.Conflict, "job %s has changed meanwhile: try again", j.Row.ID)
		}
		n += p.Size(g)
	}
	return plans, n, nil
}

// choose keeps of the rows asked for those that ended without success, and adds
// what was only skipped because of the stages that are tried again, and the rest of
// a gang.
func (p *RetryPlan) choose(g *Group, rest, freed bool) {
	whole := g.Gang() && len(p.Rows) > 0
	ended := g.Row.UnmaterializedState.Final() && g.Row.UnmaterializedState != muster.Succeeded && g.Rest() > 0
	p.Rest = ended && (rest || whole || freed && g.Row.UnmaterializedState == muster.Skipped)
	kept := p.Rows[:0]
	for _, row := range p.Rows {
		e := row.ID.Num - g.Row.First
		known := g.Tasks[e]
		switch {
		case known != nil:
			row = known.Row
		case e >= g.Row.Materialized: // of the rest
			if p.Rest || !ended {
				continue
			}
			row.State = g.Row.UnmaterializedState
		}
		if row.State.Final() && row.State != muster.Succeeded {
			kept = append(kept, row)
		}
	}
	if freed || whole {
		for _, t := range g.Elements() {
			if t.Row.State == muster.Skipped || whole && t.Row.State.Final() {
				kept = append(kept, t.Row)
			}
		}
	}
	slices.SortStableFunc(kept, func(a, b muster.Task) int { return a.ID.Num - b.ID.Num })
	p.Rows = slices.CompactFunc(kept, func(a, b muster.Task) bool { return a.ID == b.ID })
}
