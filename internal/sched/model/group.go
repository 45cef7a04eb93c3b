package model

import (
	"fmt"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dag"
	"github.com/muster-dev/muster/internal/sched/effect"
	"github.com/muster-dev/muster/internal/sched/queue"
)

// Resolve fills in what a stage takes from the stages that it needs, which have all
// succeeded: values for its ${…} and artifacts for its inputs.
func (g *Group) Resolve() (muster.Reason, error) {
	result := func(stage, element int) (muster.Task, bool) {
		t := g.Job.Groups[stage].Tasks[element]
		if t == nil {
			return muster.Task{}, false
		}
		return t.Row, true
	}
	spec := g.Job.Row.Spec
	if g.Row.Resolved == nil {
		resolved, err := dag.Resolve(spec, g.Row.Index, result)
		if err != nil {
			return muster.BadReference, err
		}
		g.Row.Resolved = resolved
	}
	inputs, err := dag.Inputs(spec, g.Row.Index, result)
	if err != nil {
		return muster.ArtifactMissing, fmt.Errorf("inputs: %w", err)
	}
	g.Inputs = nil
	for _, p := range inputs {
		g.Inputs = append(g.Inputs, effect.Input(p))
	}
	return muster.NoReason, nil
}

// Materialize gives an element a row of its own, in the state of the unmaterialized
// elements. The caller must update the queue item of the others.
func (g *Group) Materialize(element int) *Task {
	t := &Task{Row: muster.Task{
		ID: muster.TaskID{Job: g.Row.Job, Num: g.Row.First + element}, Job: g.Row.Job, Index: g.Row.First + element,
		Group: g.Row.Index, Name: g.Row.Name, Kind: g.Spec().Kind, Element: g.Spec().Element(element),
		State: g.Row.UnmaterializedState, Reason: g.Row.Reason, Message: g.Row.Message, CreatedAt: g.Job.Row.CreatedAt,
	}}
	switch {
	case g.Row.UnmaterializedState == muster.Queued:
		t.Row.QueuedAt = g.Row.UnmaterializedSince
	case g.Row.UnmaterializedState.Final():
		t.Row.FinishedAt = g.Row.UnmaterializedSince
	}
	g.Attach(t)
	if element == g.Row.Materialized {
		g.advance()
	}
	return t
}

// Attach adds a task that has a row to its group.
func (g *Group) Attach(t *Task) {
	t.Group = g
	t.Item = queue.Item{Owner: t, Job: t.Row.ID.Job, Num: t.Row.ID.Num}
	t.Timer.Subject = t
	if g.Tasks == nil {
		g.Tasks = map[int]*Task{}
	}
	g.Tasks[t.Element()] = t
	if t.Element() >= g.Row.Materialized {
		g.outOfOrder++
	}
}

// advance moves the cursor past the elements that have rows already.
func (g *Group) advance() {
	for g.outOfOrder > 0 {
		t := g.Tasks[g.Row.Materialized]
		if t == nil {
			return
		}
		if t.Row.State.Final() && !g.Row.Retained {
			delete(g.Tasks, g.Row.Materialized)
		}
		g.Row.Materialized++
		g.outOfOrder--
	}
}
