package engine

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sched"
)

// observer notices whether a job changes while its rows are read outside the engine's goroutine.
type observer struct {
	job     muster.JobID
	changed bool        // for the engine's goroutine only
	closed  atomic.Bool // the engine may forget it
}

// observe returns an observer of all that is committed of a job from now on. Everything committed before can
// be read from the store. The caller closes it.
func (e *Engine) observe(ctx context.Context, job muster.JobID) (*observer, error) {
	o := &observer{job: job}
	return o, e.tell(ctx, true, func(*sched.State, muster.Time, *batch) error {
		e.observers = append(e.observers, o)
		return nil
	})
}

// noteChanges tells the observers what a batch changes.
func (e *Engine) noteChanges(rows *muster.Rows) {
	e.observers = slices.DeleteFunc(e.observers, func(o *observer) bool { return o.closed.Load() })
	for _, o := range e.observers {
		o.changed = o.changed ||
			slices.ContainsFunc(rows.Jobs, func(j muster.Job) bool { return j.ID == o.job }) ||
			slices.ContainsFunc(rows.Groups, func(g muster.Group) bool { return g.Job == o.job }) ||
			slices.ContainsFunc(rows.Tasks, func(t muster.Task) bool { return t.ID.Job == o.job })
	}
}
