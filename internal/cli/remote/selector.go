package remote

import (
	"context"
	"iter"
	"slices"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/lazyregexp"
)

// Selector is a job, or some of its tasks: by number (17.3, 17.0-9,12), by stage (17.train), or by the elements of an array, a
// matrix or a gang (17_57, 17.train.0-9, 17.train.lr=0.1).
type Selector struct {
	Job      muster.JobID
	Spans    []client.Span // nil means the whole job; ResolveSelectors sets them for a stage and for elements
	Stage    string        // "" means the only one with elements, if Elements is set
	Elements string        // as the user gave them
}

const selectorSyntax = "use a job (17), a task (17.3), several tasks (17.0-9,12), elements of an array (17_1-9), a stage (17.train), or last for the newest job"

var stagePattern = lazyregexp.New(`^[A-Za-z0-9_-]+$`)

// ParseSelector parses one selector. The job of "last" is 0.
func ParseSelector(s string) (Selector, error) {
	job, tasks, sep := s, "", byte(0)
	if i := strings.IndexAny(s, "._"); i >= 0 {
		job, tasks, sep = s[:i], s[i+1:], s[i]
	}
	var sel Selector
	invalid := muster.Errorf(muster.Invalid, "%q is not a job or task: %s", muster.Truncate(s), selectorSyntax)
	if job != "last" {
		id, err := muster.ParseJobID(job)
		if err != nil {
			return sel, invalid
		}
		sel.Job = id
	}
	if sep == 0 {
		return sel, nil
	}
	if task, n, ok := strings.Cut(tasks, "#"); ok {
		return sel, muster.Errorf(muster.Invalid, "%q is an attempt: use %s%c%s, with --attempt %s for its logs", s, job, sep, task, n)
	}
	if sep == '_' {
		if sel.Elements = tasks; tasks == "" {
			return Selector{}, invalid
		}
		return sel, nil
	}
	if spans, err := wire.ParseSpans(tasks); err == nil && len(spans) > 0 {
		sel.Spans = spans
		return sel, nil
	}
	stage, elements, hasElements := strings.Cut(tasks, ".")
	if strings.Trim(tasks, "0123456789-,") == "" || !stagePattern.Get().MatchString(stage) || hasElements && elements == "" {
		return Selector{}, invalid
	}
	sel.Stage, sel.Elements = stage, elements
	return sel, nil
}

// String returns the selector in the form that ParseSelector reads.
func (s Selector) String() string {
	switch {
	case s.Stage != "" && s.Elements != "":
		return s.Job.String() + "." + s.Stage + "." + s.Elements
	case s.Stage != "":
		return s.Job.String() + "." + s.Stage
	case s.Elements != "":
		return s.Job.String() + "_" + s.Elements
	default:
		return s.IDs()
	}
}

// IDs returns the job's number, or the selected tasks by number, once the selector is resolved.
func (s Selector) IDs() string {
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
		if err := resolve(ctx, c, &sels[i]); err != nil {
			return nil, err
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
