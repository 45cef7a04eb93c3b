package engine

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sched"
)

// jobWatcher detects changes of a job while its rows are read outside the engine's goroutine.
type jobWatcher struct {
	job     muster.JobID
	changed bool        // Run's goroutine only
	closed  atomic.Bool // the engine may drop it
}

// watchJob returns a watcher of all later commits of a job. Earlier ones can be read from the store. The caller
// closes it.
func (e *Engine) watchJob(ctx context.Context, job muster.JobID) (*jobWatcher, error) {
	o := &jobWatcher{job: job}
	return o, e.do(ctx, true, func(*sched.State, muster.Time, *batch) error {
		e.watchers = append(e.watchers, o)
		return nil
	})
}

// notifyWatchers marks the watchers of jobs that a batch changes.
func (e *Engine) notifyWatchers(rows *muster.Rows) {
	e.watchers = slices.DeleteFunc(e.watchers, func(o *jobWatcher) bool { return o.closed.Load() })
	for _, o := range e.watchers {
		o.changed = o.changed ||
			slices.ContainsFunc(rows.Jobs, func(j muster.Job) bool { return j.ID == o.job }) ||
			slices.ContainsFunc(rows.Groups, func(g muster.Group) bool { return g.Job == o.job }) ||
			slices.ContainsFunc(rows.Tasks, func(t muster.Task) bool { return t.ID.Job == o.job })
	}
}
