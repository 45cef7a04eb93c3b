package store

import (
	"context"

	"github.com/muster-dev/muster"
)

// Summaries answers what is asked of whole jobs, without reading their tasks one by one.
type Summaries interface {
	// States returns a job, with its Spec and Groups, and the states of those of its tasks that are within span, in the order of
	// the groups. All of it is of one moment. NotFound.
	States(ctx context.Context, job muster.JobID, span Span) (muster.Job, []GroupStates, error)
	// Previous returns the newest job of the same project and name that is older, without Spec and Groups. NotFound.
	Previous(ctx context.Context, job muster.JobID) (muster.Job, error)
	// Failing lists the names of which the last n jobs that ended all failed or timed out, the newest job first. It looks at no
	// more than MaxFailing of the newest jobs that failed.
	Failing(ctx context.Context, n int) ([]FailingName, error)
}

// MaxFailing is how many of the failed jobs Summaries.Failing looks at.
const MaxFailing = 200

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

// Within returns the states of a group's tasks that are in span, as if none had a row.
func (span Span) Within(g *muster.Group) GroupStates {
	first, last := max(span.First, g.First), min(span.Last, g.First+g.Size-1)
	s := GroupStates{From: first}
	if first > last {
		s.From = g.First
		return s
	}
	s.States = make([]muster.TaskState, last-first+1)
	for i := range s.States {
		if first+i < g.First+g.Next {
			s.States[i] = muster.Succeeded // as most; the others are set by their rows
		} else {
			s.States[i] = g.Rest
		}
	}
	return s
}
