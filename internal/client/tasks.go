package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/wire"
)

// TaskQuery selects tasks of a job. Its zero value selects all.
type TaskQuery struct {
	States []muster.TaskState // any if empty
	Spans  []Span             // any if empty
	Page   int                // rows fetched at once; default 100
}

// Tasks lists tasks of a job by number. An error ends the list.
func (c *Client) Tasks(ctx context.Context, job muster.JobID, q TaskQuery) iter.Seq2[muster.Task, error] {
	v := url.Values{}
	for _, s := range q.States {
		v.Add("state", s.String())
	}
	set(v, "tasks", wire.FormatSpans(q.Spans))
	return pages(v, q.Page, func(v url.Values) ([]muster.Task, string, error) {
		var page wire.Tasks
		err := c.do(ctx, call{method: http.MethodGet, path: jobPath(job) + "/tasks", query: v, out: &page, idempotent: true})
		return page.Tasks, page.Next, err
	})
}

// AllTasks lists the tasks of all jobs that are in states, those of the newest job first; those that
// workers have if there are none. An error ends the list.
func (c *Client) AllTasks(ctx context.Context, states []muster.TaskState, page int) iter.Seq2[muster.Task, error] {
	v := url.Values{}
	for _, s := range states {
		v.Add("state", s.String())
	}
	return pages(v, page, func(v url.Values) ([]muster.Task, string, error) {
		var page wire.Tasks
		err := c.do(ctx, call{method: http.MethodGet, path: "/tasks", query: v, out: &page, idempotent: true})
		return page.Tasks, page.Next, err
	})
}

// Task returns one task.
func (c *Client) Task(ctx context.Context, id muster.TaskID) (muster.Task, error) {
	var task muster.Task
	err := c.do(ctx, call{method: http.MethodGet, path: taskPath(id), out: &task, idempotent: true})
	return task, err
}

// Attempts lists all executions of a task by number, the current one too.
func (c *Client) Attempts(ctx context.Context, id muster.TaskID) ([]muster.Attempt, error) {
	var list wire.Attempts
	err := c.do(ctx, call{method: http.MethodGet, path: taskPath(id) + "/attempts", out: &list, idempotent: true})
	return list.Attempts, err
}

// LateReports lists the reports of a job that came after their attempts had been given up: the first hundred.
func (c *Client) LateReports(ctx context.Context, id muster.JobID) ([]muster.LateReport, error) {
	var list wire.Late
	err := c.do(ctx, call{method: http.MethodGet, path: "/jobs/" + id.String() + "/late", out: &list, idempotent: true})
	return list.Late, err
}

// Explain says why a task stands where it stands.
func (c *Client) Explain(ctx context.Context, id muster.TaskID) (muster.Explanation, error) {
	var x muster.Explanation
	err := c.do(ctx, call{method: http.MethodGet, path: taskPath(id) + "/explain", out: &x, idempotent: true})
	return x, err
}

func taskPath(id muster.TaskID) string { return "/tasks/" + id.String() }
