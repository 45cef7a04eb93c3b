package sched

import (
	"fmt"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dag"
	"github.com/muster-dev/muster/internal/sched/queue"
)

// resolve fills in what a stage takes from the stages that it needs, which have all
// succeeded: values for its ${…} and artifacts for its inputs.
func (g *group) resolve() (muster.Reason, error) {
	result := func(stage, element int) (muster.Task, bool) {
		t := g.job.groups[stage].tasks[element]
		if t == nil {
			return muster.Task{}, false
		}
		return t.row, true
	}
	spec := g.job.row.Spec
	if g.row.Resolved == nil {
		resolved, err := dag.Resolve(spec, g.row.Index, result)
		if err != nil {
			return muster.BadReference, err
		}
		g.row.Resolved = resolved
	}
	inputs, err := dag.Inputs(spec, g.row.Index, result)
	if err != nil {
		return muster.ArtifactMissing, fmt.Errorf("inputs: %w", err)
	}
	g.inputs = inputs
	return muster.NoReason, nil
}

// materialize gives an element a row of its own, in the state of the unmaterialized
// elements. The caller must update the queue item of the others.
func (g *group) materialize(element int) *task {
	t := &task{row: muster.Task{
		ID: muster.TaskID{Job: g.row.Job, Num: g.row.First + element}, Job: g.row.Job, Index: g.row.First + element,
		Group: g.row.Index, Name: g.row.Name, Kind: g.spec().Kind, Element: g.spec().Element(element),
		State: g.row.UnmaterializedState, Reason: g.row.Reason, Message: g.row.Message, CreatedAt: g.job.row.CreatedAt,
	}}
	switch {
	case g.row.UnmaterializedState == muster.Queued:
		t.row.QueuedAt = g.row.UnmaterializedSince
	case g.row.UnmaterializedState.Final():
		t.row.FinishedAt = g.row.UnmaterializedSince
	}
	g.attach(t)
	if element == g.row.Materialized {
		g.advance()
	}
	return t
}

// attach adds a task that has a row to its group.
func (g *group) attach(t *task) {
	t.group = g
	t.item = queue.Item{Owner: t, Job: t.row.ID.Job, Num: t.row.ID.Num}
	t.timer.Subject = t
	if g.tasks == nil {
		g.tasks = map[int]*task{}
	}
	g.tasks[t.element()] = t
	if t.element() >= g.row.Materialized {
		g.outOfOrder++
	}
}

// advance moves the cursor past the elements that have rows already.
func (g *group) advance() {
	for g.outOfOrder > 0 {
		t := g.tasks[g.row.Materialized]
		if t == nil {
			return
		}
		if t.row.State.Final() && !g.row.Retained {
			delete(g.tasks, g.row.Materialized)
		}
		g.row.Materialized++
		g.outOfOrder--
	}
}

// gang reports whether the group's tasks start together or not at all. They are
// queued as one: under the group's item, whether they have rows or not.
func (g *group) gang() bool { return g.job.row.Spec.Tasks[g.row.Index].Gang != nil }

// awaitingGang reports whether the task is a gang's member that is done and waits for the others.
func (t *task) awaitingGang() bool { return t.group.gang() && awaitingOthers(&t.row) }

// memberCounts counts the gang's members with rows, except one of them.
func (g *group) memberCounts(except *task) (n memberCounts) {
	for _, t := range g.tasks {
		if t != except {
			n.count(&t.row)
		}
	}
	return n
}

// notBefore returns when the backoffs of all members are over.
func (g *group) notBefore() (at muster.Time) {
	for _, t := range g.tasks {
		at = max(at, t.row.NotBefore)
	}
	return at
}

// gangDue returns the next time at which a gang as a whole changes without an event, or 0.
func (g *group) gangDue() (at muster.Time) {
	if g.row.Counts[muster.Queued] < int64(g.row.Size) {
		return 0
	}
	if !g.item.Queued() {
		return g.notBefore()
	}
	for _, t := range g.tasks {
		at = queue.Earlier(at, t.avoid.NextExpiry())
	}
	return queue.Earlier(at, g.queueDeadline())
}

// queueDeadline returns when a queued gang times out, or 0.
func (g *group) queueDeadline() muster.Time {
	q := g.spec().QueueTimeout
	if q <= 0 {
		return 0
	}
	since := g.notBefore()
	if g.unmaterialized() > 0 {
		since = g.row.UnmaterializedSince
	}
	for _, t := range g.tasks {
		since = max(since, t.row.QueuedAt)
	}
	return since.Add(q)
}

// checkGang checks the invariants of a gang.
func (g *group) checkGang() error {
	n := g.memberCounts(nil)
	n.pending += g.unmaterialized()
	all := g.row.Counts[muster.Queued] == int64(g.row.Size)
	switch {
	case g.item.Queued() && !all:
		return broken("stage %q of job %s is a gang in the queue, but only %d members are queued", g.row.Name, g.row.Job, g.row.Counts[muster.Queued])
	case all && !g.item.Queued() && !g.timer.Armed():
		return broken("stage %q of job %s is a gang that is neither in the queue nor waiting for a timer", g.row.Name, g.row.Job)
	case g.row.Counts[muster.Succeeded] > 0 && !g.succeeded():
		return broken("stage %q of job %s is a gang, but only %d members have succeeded", g.row.Name, g.row.Job, g.row.Counts[muster.Succeeded])
	}
	for _, t := range g.tasks {
		switch {
		case t.item.Queued():
			return broken("task %s is in the queue without its gang", t.row.ID)
		case n.broken() && t.worker != nil && t.preemptReason == muster.NoReason && t.row.State != muster.Cancelling, n.broken() && t.awaitingGang():
			return broken("task %s keeps running though its gang is broken", t.row.ID)
		}
	}
	return nil
}
