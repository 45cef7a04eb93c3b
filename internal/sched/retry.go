package sched

import (
	"slices"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sched/event"
	"github.com/muster-dev/muster/internal/sched/judge"
)

// retry queues ended tasks again. It first finds out, stage by stage in the
// order of their needs, which tasks may be tried; only then it changes anything.
func (s *State) retry(now muster.Time, ev event.Retry) error {
	j := s.jobs[ev.Job.ID]
	if j == nil {
		var err error
		if j, err = s.revived(ev); err != nil {
			return err
		}
	}
	plans, n, err := j.planRetry(ev)
	if err != nil {
		return err
	}
	if n == 0 {
		return muster.Errorf(muster.Conflict, "job %s has no ended task here that could be tried again: those that succeeded stay, "+
			"and those that were skipped need others that did not succeed", j.row.ID)
	}
	if s.jobs[j.row.ID] == nil {
		s.load(j)
	}
	for _, g := range j.order {
		s.retryGroup(now, g, &plans[g.row.Index])
	}
	s.changedJob(j)
	s.touchJob(j)
	return nil
}

// revived wires a job that has left memory, with those of its tasks that a live
// job has in memory.
func (s *State) revived(ev event.Retry) (*job, error) {
	id := ev.Job.ID
	if id < 1 || id >= s.next {
		return nil, muster.Errorf(muster.NotFound, "there is no job %s", id)
	}
	if slices.ContainsFunc(s.out.jobs, func(j *job) bool { return j.row.ID == id }) {
		return nil, muster.Errorf(muster.Unavailable, "job %s has only just ended: try again", id)
	}
	j, err := newJob(ev.Job, ev.Groups)
	if err != nil {
		return nil, err
	}
	for _, rows := range [][]muster.Task{ev.Ended, ev.Kept} {
		for i := range rows {
			row := &rows[i]
			g := j.group(row.ID.Num)
			if g == nil || row.Made {
				continue
			}
			if e := row.ID.Num - g.row.First; g.tasks[e] == nil && (g.row.Kept || e >= g.row.Next) {
				g.adopt(&task{row: *row})
			}
		}
	}
	return j, nil
}

// retryPlan is what is tried again of one stage.
type retryPlan struct {
	rows []muster.Task // by number
	rest bool
}

// size returns how many tasks the plan for g tries again.
func (p *retryPlan) size(g *group) int {
	if p.rest {
		return len(p.rows) + g.rest()
	}
	return len(p.rows)
}

// planRetry chooses what is tried again, and counts it. A stage whose needs will
// not all be met is left out: its tasks would be skipped at once.
func (j *job) planRetry(ev event.Retry) (plans []retryPlan, n int, err error) {
	plans = make([]retryPlan, len(j.groups))
	for i := range ev.Ended {
		row := &ev.Ended[i]
		g := j.group(row.ID.Num)
		if g == nil || row.ID.Job != j.row.ID {
			return nil, 0, muster.Errorf(muster.NotFound, "job %s has no task %s", j.row.ID, row.ID)
		}
		plans[g.row.Index].rows = append(plans[g.row.Index].rows, *row)
	}
	missed := make([]int64, len(j.groups)) // tasks without success that stay so
	for _, g := range j.order {
		p := &plans[g.row.Index]
		blocked, freed := false, false
		for _, need := range g.needs {
			blocked = blocked || missed[need.row.Index] > 0
			freed = freed || plans[need.row.Index].size(need) > 0
		}
		if blocked {
			*p = retryPlan{}
		} else {
			p.choose(g, ev.Rest, freed)
		}
		if k := p.size(g); g.gang() && k > 0 && k < g.row.Size {
			return nil, 0, muster.Errorf(muster.Conflict, "stage %q is a gang that is still being stopped: try again when all of its tasks have ended", g.row.Name)
		}
		missed[g.row.Index] = g.missed() - int64(p.size(g))
		if missed[g.row.Index] < 0 {
			return nil, 0, muster.Errorf(muster.Conflict, "job %s has changed meanwhile: try again", j.row.ID)
		}
		n += p.size(g)
	}
	return plans, n, nil
}

// choose keeps of the rows asked for those that ended without success, and adds
// what was only skipped because of the stages that are tried again, and the rest of
// a gang.
func (p *retryPlan) choose(g *group, rest, freed bool) {
	whole := g.gang() && len(p.rows) > 0
	ended := g.row.Rest.Final() && g.row.Rest != muster.Succeeded && g.rest() > 0
	p.rest = ended && (rest || whole || freed && g.row.Rest == muster.Skipped)
	kept := p.rows[:0]
	for _, row := range p.rows {
		e := row.ID.Num - g.row.First
		known := g.tasks[e]
		switch {
		case known != nil:
			row = known.row
		case e >= g.row.Next: // of the rest
			if p.rest || !ended {
				continue
			}
			row.State = g.row.Rest
		}
		if row.State.Final() && row.State != muster.Succeeded {
			kept = append(kept, row)
		}
	}
	if freed || whole {
		for _, t := range g.elements() {
			if t.row.State == muster.Skipped || whole && t.row.State.Final() {
				kept = append(kept, t.row)
			}
		}
	}
	slices.SortStableFunc(kept, func(a, b muster.Task) int { return a.ID.Num - b.ID.Num })
	p.rows = slices.CompactFunc(kept, func(a, b muster.Task) bool { return a.ID == b.ID })
}

// retryGroup carries out the plan for one stage. A stage with needs waits first:
// if they are met, it goes on from there at once.
func (s *State) retryGroup(now muster.Time, g *group, p *retryPlan) {
	to := muster.Queued
	if len(g.needs) > 0 {
		to = muster.Waiting
	}
	for i := range p.rows {
		row := &p.rows[i]
		e := row.ID.Num - g.row.First
		t := g.tasks[e]
		switch {
		case t != nil:
		case e >= g.row.Next:
			t = s.single(g, e)
			g.tasks[e] = t // in case it was passed by Next at once
		default:
			t = &task{row: *row}
			g.adopt(t)
		}
		if past, ok := judge.Last(&t.row); ok {
			s.out.attempts = append(s.out.attempts, past)
		}
		judge.Clear(&t.row)
		r := &t.row
		r.Reason, r.Message, r.Retried, r.Crashes, r.QueuedAt = muster.NoReason, "", 0, 0, 0
		if to == muster.Queued {
			r.QueuedAt = now
		}
		s.set(now, t, to)
		if to == muster.Queued {
			s.enqueue(t)
		}
	}
	if p.rest {
		s.moveRest(now, g, to, muster.NoReason, "")
	}
	if g.gang() {
		s.lineUp(now, g)
	}
	if to == muster.Waiting && p.size(g) > 0 {
		s.advance(now, g)
	}
}
