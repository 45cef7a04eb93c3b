package store

import (
	"context"

	"github.com/muster-dev/muster"
)

// SummaryReader reads summaries of jobs, without reading their tasks one by one.
type SummaryReader interface {
	// TaskStates returns a job, with its Spec and Groups, and the states of its tasks in span, in the order of
	// the groups, from one snapshot. NotFound.
	TaskStates(ctx context.Context, job muster.JobID, span Span) (muster.Job, []GroupStates, error)
	// PreviousJob returns the newest older job of the same project and name, without Spec and Groups. NotFound.
	PreviousJob(ctx context.Context, job muster.JobID) (muster.Job, error)
	// FailingNames lists the names whose last n ended jobs all failed or timed out, the newest job first. It looks at
	// most at the MaxFailedScanned newest failed jobs.
	FailingNames(ctx context.Context, n int) ([]FailingName, error)
}

// MaxFailedScanned is how many failed jobs FailingNames looks at.
const MaxFailedScanned = 200

// FailingName is a name whose last jobs failed.
type FailingName struct {
	Project, Name string
	Job           muster.JobID // the last one
	FinishedAt    muster.Time
}

// GroupStates has the states of consecutive tasks of one group.
type GroupStates struct {
	From   int // number of the first task
	States []muster.TaskState
}

// DefaultStates returns the states of a group's tasks in span, without those from rows.
func (span Span) DefaultStates(g *muster.Group) GroupStates {
	first, last := max(span.First, g.First), min(span.Last, g.First+g.Size-1)
	s := GroupStates{From: first}
	if first > last {
		s.From = g.First
		return s
	}
	s.States = make([]muster.TaskState, last-first+1)
	for i := range s.States {
		if first+i < g.First+g.Materialized {
			s.States[i] = muster.Succeeded // the caller sets other states from rows
		} else {
			s.States[i] = g.UnmaterializedState
		}
	}
	return s
}
