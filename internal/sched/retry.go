package sched

import (
	"slices"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sched/event"
	"github.com/muster-dev/muster/internal/sched/judge"
	"github.com/muster-dev/muster/internal/sched/model"
)

// retry queues ended tasks again. It first plans, stage by stage in dependency order,
// which tasks can be retried, and only then changes anything.
func (s *State) retry(now muster.Time, ev event.Retry) error {
	j := s.jobs[ev.Job.ID]
	if j == nil {
		var err error
		if j, err = s.reviveJob(ev); err != nil {
			return err
		}
	}
	plans, n, err := j.PlanRetry(ev)
	if err != nil {
		return err
	}
	if n == 0 {
		return muster.Errorf(muster.Conflict, "nothing to retry in job %s: only ended tasks that did not succeed are retried, "+
			"and skipped ones only together with the tasks that they need", j.Row.ID)
	}
	if s.jobs[j.Row.ID] == nil {
		s.addJob(j)
	}
	for _, g := range j.Order {
		s.retryGroup(now, g, &plans[g.Row.Index])
	}
	s.changedJob(j)
	s.touchJob(j)
	return nil
}

// reviveJob restores an ended job to memory, with those tasks that a live job keeps.
func (s *State) reviveJob(ev event.Retry) (*model.Job, error) {
	id := ev.Job.ID
	if id < 1 || id >= s.nextJob {
		return nil, muster.Errorf(muster.NotFound, "there is no job %s", id)
	}
	if slices.ContainsFunc(s.out.jobs, func(j *model.Job) bool { return j.Row.ID == id }) {
		return nil, muster.Errorf(muster.Unavailable, "job %s has only just ended: try again", id)
	}
	j, err := model.NewJob(ev.Job, ev.Groups)
	if err != nil {
		return nil, err
	}
	for _, rows := range [][]muster.Task{ev.Ended, ev.Kept} {
		for i := range rows {
			row := &rows[i]
			g := j.Group(row.ID.Num)
			if g == nil || row.Synthesized {
				continue
			}
			if e := row.ID.Num - g.Row.First; g.Tasks[e] == nil && (g.Row.Retained || e >= g.Row.Materialized) {
				g.Attach(&model.Task{Row: *row})
			}
		}
	}
	return j, nil
}

// retryGroup carries out the plan for one stage. A stage with needs becomes waiting
// first, and is queued at once if they are met.
func (s *State) retryGroup(now muster.Time, g *model.Group, p *model.RetryPlan) {
	to := muster.Queued
	if len(g.Needs) > 0 {
		to = muster.Waiting
	}
	for i := range p.Rows {
		row := &p.Rows[i]
		e := row.ID.Num - g.Row.First
		t := g.Tasks[e]
		switch {
		case t != nil:
		case e >= g.Row.Materialized:
			t = s.materialize(g, e)
			g.Tasks[e] = t // materialize drops a final task that the cursor has passed
		default:
			t = &model.Task{Row: *row}
			g.Attach(t)
		}
		if past, ok := judge.LastAttempt(&t.Row); ok {
			s.out.attempts = append(s.out.attempts, past)
		}
		judge.ClearExecution(&t.Row)
		r := &t.Row
		r.Reason, r.Message, r.Retried, r.Crashes, r.QueuedAt = muster.NoReason, "", 0, 0, 0
		if to == muster.Queued {
			r.QueuedAt = now
		}
		s.setState(now, t, to)
		if to == muster.Queued {
			s.enqueue(t)
		}
	}
	if p.Unmaterialized {
		s.transitionRest(now, g, to, muster.NoReason, "")
	}
	if g.Gang() {
		s.enqueueGang(now, g)
	}
	if to == muster.Waiting && p.Size(g) > 0 {
		s.advanceStage(now, g)
	}
}
