package remote

import (
	"context"
	"iter"
	"slices"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/client"
)

// Selector is a job, or some of its tasks: 17, 17.3, 17.0-9,12.
type Selector struct {
	Job   muster.JobID
	Spans []client.Span // nil means the whole job
}

const selectorSyntax = "use a job (17), a task (17.3), several tasks (17.0-9,12), or last for the newest job"

// ParseSelector parses one selector. The job of "last" is 0.
func ParseSelector(s string) (Selector, error) {
	job, tasks, hasTasks := strings.Cut(s, ".")
	var sel Selector
	invalid := muster.Errorf(muster.Invalid, "%q is not a job or task: %s", s, selectorSyntax)
	if job != "last" {
		id, err := muster.ParseJobID(job)
		if err != nil {
			return sel, invalid
		}
		sel.Job = id
	}
	if !hasTasks {
		return sel, nil
	}
	if task, n, ok := strings.Cut(tasks, "#"); ok {
		return sel, muster.Errorf(muster.Invalid, "%q is an attempt: use %s.%s, with --attempt %s for its logs", s, job, task, n)
	}
	spans, err := wire.ParseSpans(tasks)
	if err != nil || len(spans) == 0 {
		return sel, invalid
	}
	sel.Spans = spans
	return sel, nil
}

// String returns the selector in the form that ParseSelector reads.
func (s Selector) String() string {
	if s.Spans == nil {
		return s.Job.String()
	}
	return s.Job.String() + "." + wire.FormatSpans(s.Spans)
}

// Task returns the selected task, if it is a single one.
func (s Selector) Task() (muster.TaskID, bool) {
	if len(s.Spans) != 1 || s.Spans[0].First != s.Spans[0].Last {
		return muster.TaskID{}, false
	}
	return muster.TaskID{Job: s.Job, Num: s.Spans[0].First}, true
}

// ResolveSelectors parses the arguments of a command for jobs or tasks.
func ResolveSelectors(ctx context.Context, c *client.Client, args []string) ([]Selector, error) {
	if len(args) == 0 {
		return nil, muster.Errorf(muster.Invalid, "missing job or task: %s", selectorSyntax)
	}
	sels := make([]Selector, len(args))
	var err error
	for i, arg := range args {
		if sels[i], err = ParseSelector(arg); err != nil {
			return nil, err
		}
	}
	for i := range sels {
		if sels[i].Job == 0 {
			if sels[i].Job, err = LastJob(ctx, c); err != nil {
				return nil, err
			}
		}
	}
	return sels, nil
}

// LastJob returns the newest job.
func LastJob(ctx context.Context, c *client.Client) (muster.JobID, error) {
	for job, err := range c.Jobs(ctx, client.JobQuery{Page: 1}) {
		return job.ID, err
	}
	return 0, muster.Errorf(muster.NotFound, "no jobs yet: submit one with muster run or muster submit")
}

// ResolveJobs parses the arguments of a command for whole jobs.
func ResolveJobs(ctx context.Context, c *client.Client, args []string) ([]muster.JobID, error) {
	sels, err := ResolveSelectors(ctx, c, args)
	if err != nil {
		return nil, err
	}
	ids := make([]muster.JobID, len(sels))
	for i, sel := range sels {
		if sel.Spans != nil {
			return nil, muster.Errorf(muster.Invalid, "%s selects tasks, but this command shows whole jobs: use %s, or muster tasks %s", sel, sel.Job, sel)
		}
		ids[i] = sel.Job
	}
	return ids, nil
}

// Contains reports whether a task is selected. It is false for nil.
func (s Selector) Contains(t *muster.TaskID) bool {
	return t != nil && t.Job == s.Job && (s.Spans == nil || slices.ContainsFunc(s.Spans, func(p client.Span) bool {
		return p.First <= t.Num && t.Num <= p.Last
	}))
}

// Tasks yields the selected tasks, in any state if states is empty. A selector without any task is an error.
func Tasks(ctx context.Context, server *client.Client, sels []Selector, states []muster.TaskState) iter.Seq2[muster.Task, error] {
	return TasksPage(ctx, server, sels, states, 0)
}

// TasksPage is Tasks for a caller that needs only the first rows: the size of a page; 0 means all.
func TasksPage(ctx context.Context, server *client.Client, sels []Selector, states []muster.TaskState, rows int) iter.Seq2[muster.Task, error] {
	return queryTasks(ctx, server, sels, client.TaskQuery{States: states, Page: rows})
}

// AttemptedTasks yields those of the selected tasks that were assigned to a worker: others have no output. A selector without any task is
// an error.
func AttemptedTasks(ctx context.Context, server *client.Client, sels []Selector) iter.Seq2[muster.Task, error] {
	return queryTasks(ctx, server, sels, client.TaskQuery{Attempted: true})
}

func queryTasks(ctx context.Context, server *client.Client, sels []Selector, q client.TaskQuery) iter.Seq2[muster.Task, error] {
	if q.Page == 0 {
		q.Page = 1000
	}
	return func(yield func(muster.Task, error) bool) {
		for _, sel := range sels {
			n := 0
			q.Spans = sel.Spans
			rows := server.Tasks(ctx, sel.Job, q)
			counted := func(t muster.Task, err error) bool {
				n++
				return yield(t, err)
			}
			if !YieldAll(rows, counted) {
				return
			}
			if n == 0 && q.Attempted { // is there any task?
				for _, err := range server.Tasks(ctx, sel.Job, client.TaskQuery{Spans: sel.Spans, Page: 1}) {
					if err != nil {
						yield(muster.Task{}, err)
						return
					}
					n++
					break
				}
			}
			if n == 0 && len(q.States) == 0 {
				yield(muster.Task{}, muster.Errorf(muster.NotFound, "no task %s: muster job %d shows the tasks of the job", sel, sel.Job))
				return
			}
		}
	}
}

// Jobs yields the jobs in each set of states, one set after the other.
func Jobs(ctx context.Context, c *client.Client, q client.JobQuery, sets ...[]muster.JobState) iter.Seq2[muster.Job, error] {
	return func(yield func(muster.Job, error) bool) {
		for _, states := range sets {
			q.States = states
			if len(states) > 0 && !YieldAll(c.Jobs(ctx, q), yield) {
				return
			}
		}
	}
}

// Collect reads the elements of seq, at most limit unless that is 0.
func Collect[T any](seq iter.Seq2[T, error], limit int) ([]T, error) {
	var all []T
	for v, err := range seq {
		if err != nil {
			return nil, err
		}
		if all = append(all, v); len(all) == limit {
			break
		}
	}
	return all, nil
}

// YieldAll yields the elements of seq, up to the first error, and reports whether to continue.
func YieldAll[T any](seq iter.Seq2[T, error], yield func(T, error) bool) bool {
	for v, err := range seq {
		if !yield(v, err) || err != nil {
			return false
		}
	}
	return true
}

// MultipleTasks reports whether the selectors select more than one task.
func MultipleTasks(ctx context.Context, server *client.Client, sels []Selector) (bool, error) {
	if len(sels) != 1 {
		return true, nil
	}
	if sels[0].Spans != nil {
		_, single := sels[0].Task()
		return !single, nil
	}
	job, err := server.Job(ctx, sels[0].Job)
	return job.Counts.Total() > 1, err
}
