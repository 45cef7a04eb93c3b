package engine

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sched"
	"github.com/muster-dev/muster/internal/store"
)

// maxMaterialized limits how many elements of an array one request may change one by one.
// Each becomes a row, and blocks the engine meanwhile: this many take about two seconds.
// Whole arrays change in one step.
const maxMaterialized = 200_000

// Cancel stops tasks of a job, all of them if spans is nil.
func (e *Engine) Cancel(ctx context.Context, job muster.JobID, spans []muster.Span) error {
	return e.do(ctx, true, func(st *sched.State, now muster.Time, _ *batch) error {
		if spans != nil || !st.Live(job) {
			j, err := e.cfg.Store.Job(ctx, job)
			if err != nil {
				return err
			}
			if j.State.Final() {
				return muster.Errorf(muster.Conflict, "job %d has already ended: it is %s", job, j.State)
			}
			if n := countMaterialized(j.Groups, spans); n > maxMaterialized {
				return tooMany(job, "cancel", ", or the whole job")
			}
		}
		return st.Apply(now, sched.Cancel{Job: job, Tasks: spans})
	})
}

// Edit changes the priority of a job that has not ended, or holds or releases it; nil leaves a property as it is.
func (e *Engine) Edit(ctx context.Context, job muster.JobID, priority *int, held *bool) error {
	return e.do(ctx, true, func(st *sched.State, now muster.Time, _ *batch) error {
		return st.Apply(now, sched.Edit{Job: job, Priority: priority, Held: held})
	})
}

func tooMany(job muster.JobID, verb, or string) error {
	return muster.Errorf(muster.TooLarge, "this would %s more than %d tasks of job %d one by one: name fewer at once, such as %d.[0-%d]%s",
		verb, maxMaterialized, job, job, maxMaterialized-1, or)
}

// countMaterialized counts the elements that a cancellation of spans would materialize. A
// span from a group's cursor to its end materializes none: it is cancelled in one step.
func countMaterialized(groups []muster.Group, spans []muster.Span) int {
	n := 0
	for _, span := range muster.MergeSpans(spans) {
		for i := range groups {
			g := &groups[i]
			next, last := g.First+g.Materialized, g.First+g.Size-1
			if g.UnmaterializedState.Final() || span.First <= next && span.Last >= last {
				continue
			}
			n += max(min(span.Last, last)-max(span.First, next)+1, 0)
		}
	}
	return n
}

// Retry queues ended tasks that did not succeed, all of them if spans is nil. It reads the rows while the engine
// handles other requests; only if the job changes meanwhile, the engine waits for a second read.
func (e *Engine) Retry(ctx context.Context, job muster.JobID, spans []muster.Span) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	o, err := e.watchJob(ctx, job)
	defer o.closed.Store(true)
	if err != nil {
		return err
	}
	ev, err := e.retryEvent(ctx, job, spans)
	if err != nil {
		return err
	}
	return e.do(ctx, true, func(st *sched.State, now muster.Time, _ *batch) error {
		if o.changed {
			if ev, err = e.retryEvent(ctx, job, spans); err != nil {
				return err
			}
		}
		return st.Apply(now, ev)
	})
}

var retryable = []muster.TaskState{muster.Failed, muster.TimedOut, muster.Cancelled, muster.Skipped}

// retryPage is how many rows of a retried job are read at a time.
const retryPage = 10_000

// retryEvent reads the rows for a retry.
func (e *Engine) retryEvent(ctx context.Context, id muster.JobID, spans []muster.Span) (sched.Retry, error) {
	job, err := e.cfg.Store.Job(ctx, id)
	if err != nil {
		return sched.Retry{}, err
	}
	if job.ArtifactsRemovedAt != 0 {
		return sched.Retry{}, muster.Errorf(muster.Conflict, "job %s cannot be retried: its artifacts and checkpoints were deleted on %s; submit it again with muster rerun %s",
			id, job.ArtifactsRemovedAt.Std().Format(time.DateOnly), id)
	}
	job.JobRetention = muster.JobRetention{} // is not of the engine's row
	ev := sched.Retry{Job: job, Groups: job.Groups, Unmaterialized: spans == nil}
	// Without spans the tasks that have no rows are retried in one step.
	q := store.TaskQuery{Job: id, States: retryable, StoredOnly: ev.Unmaterialized, Limit: retryPage}
	for _, s := range spans {
		q.Spans = append(q.Spans, store.Span(s))
	}
	if ev.Ended, err = e.readTasks(ctx, q, maxMaterialized); err != nil {
		return sched.Retry{}, err
	}
	kept := store.TaskQuery{Job: id, StoredOnly: true, Limit: retryPage}
	for _, g := range job.Groups {
		first, last := g.First, g.First+g.Size-1
		if !g.Retained {
			first += g.Materialized
		}
		if first <= last {
			kept.Spans = append(kept.Spans, store.Span{First: first, Last: last})
		}
	}
	if len(kept.Spans) > 0 {
		ev.Kept, err = e.readTasks(ctx, kept, muster.MaxTasks)
	}
	return ev, err
}

// readTasks reads all tasks of q, and fails if there are more than limit.
func (e *Engine) readTasks(ctx context.Context, q store.TaskQuery, limit int) ([]muster.Task, error) {
	var all []muster.Task
	for {
		page, next, err := e.cfg.Store.Tasks(ctx, q)
		if err != nil {
			return nil, err
		}
		if all = append(all, page...); len(all) > limit {
			return nil, tooMany(q.Job, "retry", "")
		}
		if next == "" {
			return all, nil
		}
		q.Cursor = next
	}
}

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
func (e *Engine) notifyWatchers(rows *muster.Rows, retired *retention) {
	e.watchers = slices.DeleteFunc(e.watchers, func(o *jobWatcher) bool { return o.closed.Load() })
	for _, o := range e.watchers {
		o.changed = o.changed || retired.changes(o.job) ||
			slices.ContainsFunc(rows.Jobs, func(j muster.Job) bool { return j.ID == o.job }) ||
			slices.ContainsFunc(rows.Groups, func(g muster.Group) bool { return g.Job == o.job }) ||
			slices.ContainsFunc(rows.Tasks, func(t muster.Task) bool { return t.ID.Job == o.job })
	}
}
