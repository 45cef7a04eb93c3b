package cli

import (
	"context"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/client"
)

// selector is a job, or some of its tasks: 17, 17.3, 17.0-9,12.
type selector struct {
	Job   muster.JobID
	Spans []client.Span // nil means the whole job
}

const selectors = "write a job (17), a task (17.3), several (17.0-9,12), or last for the newest job"

// parseSelector reads one selector. The job of "last" is 0.
func parseSelector(s string) (selector, error) {
	job, tasks, some := strings.Cut(s, ".")
	var sel selector
	if job != "last" {
		id, err := muster.ParseJobID(job)
		if err != nil {
			return sel, muster.Errorf(muster.Invalid, "%q names no job or task: %s", s, selectors)
		}
		sel.Job = id
	}
	if !some {
		return sel, nil
	}
	if task, n, ok := strings.Cut(tasks, "#"); ok {
		return sel, muster.Errorf(muster.Invalid, "%q is an attempt: write %s.%s and, for its logs, --attempt %s", s, job, task, n)
	}
	spans, err := wire.ParseSpans(tasks)
	if err != nil || len(spans) == 0 {
		return sel, muster.Errorf(muster.Invalid, "%q names no job or task: %s", s, selectors)
	}
	sel.Spans = spans
	return sel, nil
}

// String writes the selector as a user would.
func (s selector) String() string {
	if s.Spans == nil {
		return s.Job.String()
	}
	return s.Job.String() + "." + wire.FormatSpans(s.Spans)
}

// task returns the task that the selector names, if it is a single one.
func (s selector) task() (muster.TaskID, bool) {
	if len(s.Spans) != 1 || s.Spans[0].First != s.Spans[0].Last {
		return muster.TaskID{}, false
	}
	return muster.TaskID{Job: s.Job, Num: s.Spans[0].First}, true
}

// selection reads the arguments of a command that works on jobs or tasks.
func selection(ctx context.Context, c *client.Client, args []string) ([]selector, error) {
	if len(args) == 0 {
		return nil, muster.Errorf(muster.Invalid, "no job or task is named: %s", selectors)
	}
	var sels []selector
	for _, arg := range args {
		sel, err := parseSelector(arg)
		if err != nil {
			return nil, err
		}
		sels = append(sels, sel)
	}
	for i := range sels {
		if sels[i].Job != 0 {
			continue
		}
		newest, err := lastJob(ctx, c)
		if err != nil {
			return nil, err
		}
		sels[i].Job = newest
	}
	return sels, nil
}

func lastJob(ctx context.Context, c *client.Client) (muster.JobID, error) {
	for job, err := range c.Jobs(ctx, client.JobQuery{Page: 1}) {
		return job.ID, err
	}
	return 0, muster.Errorf(muster.NotFound, "there is no job yet: submit one with muster run or muster submit")
}

// jobsOf reads the arguments of a command that works on whole jobs.
func jobsOf(ctx context.Context, c *client.Client, args []string) ([]muster.JobID, error) {
	sels, err := selection(ctx, c, args)
	if err != nil {
		return nil, err
	}
	ids := make([]muster.JobID, len(sels))
	for i, sel := range sels {
		if sel.Spans != nil {
			return nil, muster.Errorf(muster.Invalid, "%s names tasks, but this command shows whole jobs: write %s, or see muster tasks %s", sel, sel.Job, sel)
		}
		ids[i] = sel.Job
	}
	return ids, nil
}
