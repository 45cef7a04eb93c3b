package sched

import (
	"fmt"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dag"
	"github.com/muster-dev/muster/internal/sched/queue"
)

// Resolve fills in what a stage takes from the stages that it needs, which have all
// succeeded: values for its ${…} and artifacts for its inputs.
func (g *group) Resolve() (muster.Reason, error) {
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
	g.Inputs = inputs
	return muster.NoReason, nil
}

// Materialize gives an element a row of its own, in the state of the unmaterialized
// elements. The caller must update the queue item of the others.
func (g *group) Materialize(element int) *task {
	t := &task{Row: muster.Task{
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
func (g *group) Attach(t *task) {
	t.Group = g
	t.Item = queue.Item{Owner: t, Job: t.Row.ID.Job, Num: t.Row.ID.Num}
	t.Timer.Subject = t
	if g.Tasks == nil {
		g.Tasks = map[int]*task{}
	}
	g.Tasks[t.Element()] = t
	if t.Element() >= g.Row.Materialized {
		g.outOfOrder++
	}
}

// advance moves the cursor past the elements that have rows already.
func (g *group) advance() {
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

// Gang reports whether the group's tasks start together or not at all. They are
// queued as one: under the group's item, whether they have rows or not.
func (g *group) Gang() bool { return g.Job.Row.Spec.Tasks[g.Row.Index].Gang != nil }

// AwaitingGang reports whether the task is a gang's member that is done and waits for the others.
func (t *task) AwaitingGang() bool { return t.Group.Gang() && awaitingOthers(&t.Row) }

// MemberCounts counts the gang's members with rows, except one of them.
func (g *group) MemberCounts(except *task) (n memberCounts) {
	for _, t := range g.Tasks {
		if t != except {
			n.Count(&t.Row)
		}
	}
	return n
}

// NotBefore returns when the backoffs of all members are over.
func (g *group) NotBefore() (at muster.Time) {
	for _, t := range g.Tasks {
		at = max(at, t.Row.NotBefore)
	}
	return at
}

// gangDue returns the next time at which a gang as a whole changes without an event, or 0.
func (g *group) gangDue() (at muster.Time) {
	if g.Row.Counts[muster.Queued] < int64(g.Row.Size) {
		return 0
	}
	if !g.Item.Queued() {
		return g.NotBefore()
	}
	for _, t := range g.Tasks {
		at = queue.Earlier(at, t.Avoid.NextExpiry())
	}
	return queue.Earlier(at, g.QueueDeadline())
}

// QueueDeadline returns when a queued gang times out, or 0.
func (g *group) QueueDeadline() muster.Time {
	q := g.Spec().QueueTimeout
	if q <= 0 {
		return 0
	}
	since := g.NotBefore()
	if g.Unmaterialized() > 0 {
		since = g.Row.UnmaterializedSince
	}
	for _, t := range g.Tasks {
		since = max(since, t.Row.QueuedAt)
	}
	return since.Add(q)
}

// checkGang checks the invariants of a gang.
func (g *group) checkGang() error {
	n := g.MemberCounts(nil)
	n.Pending += g.Unmaterialized()
	all := g.Row.Counts[muster.Queued] == int64(g.Row.Size)
	switch {
	case g.Item.Queued() && !all:
		return broken("stage %q of job %s is a gang in the queue, but only %d members are queued", g.Row.Name, g.Row.Job, g.Row.Counts[muster.Queued])
	case all && !g.Item.Queued() && !g.Timer.Armed():
		return broken("stage %q of job %s is a gang that is neither in the queue nor waiting for a timer", g.Row.Name, g.Row.Job)
	case g.Row.Counts[muster.Succeeded] > 0 && !g.Succeeded():
		return broken("stage %q of job %s is a gang, but only %d members have succeeded", g.Row.Name, g.Row.Job, g.Row.Counts[muster.Succeeded])
	}
	for _, t := range g.Tasks {
		switch {
		case t.Item.Queued():
			return broken("task %s is in the queue without its gang", t.Row.ID)
		case n.Broken() && t.Worker != nil && t.PreemptReason == muster.NoReason && t.Row.State != muster.Cancelling, n.Broken() && t.AwaitingGang():
			return broken("task %s keeps running though its gang is broken", t.Row.ID)
		}
	}
	return nil
}
