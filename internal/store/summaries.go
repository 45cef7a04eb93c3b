package store

import (
	"context"

	"github.com/muster-dev/muster"
)

// SummaryReader answers what is asked of whole jobs, without reading their tasks one by one.
type SummaryReader interface {
	// TaskStates returns a job, with its Spec and Groups, and the states of those of its tasks that are within span, in the order of
	// the groups. All of it is of one moment. NotFound.
	TaskStates(ctx context.Context, job muster.JobID, span Span) (muster.Job, []GroupStates, error)
	// PreviousJob returns the newest job of the same project and name that is older, without Spec and Groups. NotFound.
	PreviousJob(ctx context.Context, job muster.JobID) (muster.Job, error)
	// FailingNames lists the names of which the last n jobs that ended all failed or timed out, the newest job first. It looks at no
	// more than MaxFailedScanned of the newest jobs that failed.
	FailingNames(ctx context.Context, n int) ([]FailingName, error)
}

// MaxFailedScanned is how many of the failed jobs Summaries.Failing looks at.
const MaxFailedScanned = 200

// FailingName is a name of jobs of which the last ones failed.
type FailingName struct {
	Project, Name string
	Job           muster.JobID // the last one
	FinishedAt    muster.Time
}

// GroupStates is the states of tasks of one group that follow each other.
type GroupStates struct {
	From   int // number of the first task
	States []muster.TaskState
}

// DefaultStates returns the states of a group's tasks that are in span, as if none had a row.
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
			s.States[i] = muster.Succeeded // as most; the others are set by their rows
		} else {
			s.States[i] = g.UnmaterializedState
		}
	}
	return s
}
