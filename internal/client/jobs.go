package client

import (
	"context"
	"crypto/rand"
	"iter"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/wire"
)

// SubmitOptions tune Submit.
type SubmitOptions struct {
	IdempotencyKey string // default: a new one, so that a repeated try makes one job
}

// Submit submits a job. Local things must be replaced before: see UploadFolder.
func (c *Client) Submit(ctx context.Context, s *muster.Spec, o SubmitOptions) (muster.Job, error) {
	if o.IdempotencyKey == "" {
		o.IdempotencyKey = rand.Text()
	}
	var job muster.Job
	err := c.do(ctx, call{
		method: http.MethodPost, path: "/jobs", body: s, out: &job, idempotent: true,
		header: http.Header{wire.HeaderIdempotency: {o.IdempotencyKey}},
	})
	return job, err
}

// Plan says where the first task of each stage would run if s were submitted now.
func (c *Client) Plan(ctx context.Context, s *muster.Spec) ([]muster.Explanation, error) {
	var plan wire.Plan
	err := c.do(ctx, call{method: http.MethodPost, path: "/plan", body: s, out: &plan, idempotent: true})
	return plan.Stages, err
}

// Job returns one job with its spec and groups.
func (c *Client) Job(ctx context.Context, id muster.JobID) (muster.Job, error) {
	var job muster.Job
	err := c.do(ctx, call{method: http.MethodGet, path: jobPath(id), out: &job, idempotent: true})
	return job, err
}

// JobQuery selects jobs. Its zero value selects all.
type JobQuery struct {
	States  []muster.JobState // any if empty
	Project string
	Name    string            // part of the name
	Labels  map[string]string // all of them
	Kind    string
	Owner   string    // the key that submitted it
	Since   time.Time // created then or later
	Until   time.Time // created then or earlier
	Oldest  bool      // first
	Page    int       // rows fetched at once; default 100
}

// Jobs lists jobs, newest first unless the query says otherwise. An error ends the list.
func (c *Client) Jobs(ctx context.Context, q JobQuery) iter.Seq2[muster.Job, error] {
	v := url.Values{}
	for _, s := range q.States {
		v.Add("state", string(s))
	}
	for _, k := range slices.Sorted(maps.Keys(q.Labels)) {
		v.Add("label", k+"="+q.Labels[k])
	}
	set(v, "project", q.Project)
	set(v, "name", q.Name)
	set(v, "kind", q.Kind)
	set(v, "owner", q.Owner)
	if !q.Since.IsZero() {
		v.Set("since", q.Since.Format(time.RFC3339Nano))
	}
	if !q.Until.IsZero() {
		v.Set("until", q.Until.Format(time.RFC3339Nano))
	}
	if q.Oldest {
		v.Set("order", "oldest")
	}
	return pages(v, q.Page, func(v url.Values) ([]muster.Job, string, error) {
		var page wire.Jobs
		err := c.do(ctx, call{method: http.MethodGet, path: "/jobs", query: v, out: &page, idempotent: true})
		return page.Jobs, page.Next, err
	})
}

// Span is the task numbers First to Last.
type Span = muster.Span

// Cancel stops tasks of a job, all of them if spans is nil, and returns the job.
func (c *Client) Cancel(ctx context.Context, id muster.JobID, spans []Span) (muster.Job, error) {
	return c.change(ctx, id, "/cancel", spans)
}

// Retry queues ended tasks that did not succeed again, all of them if spans is
// nil, and returns the job.
func (c *Client) Retry(ctx context.Context, id muster.JobID, spans []Span) (muster.Job, error) {
	return c.change(ctx, id, "/retry", spans)
}

func (c *Client) change(ctx context.Context, id muster.JobID, verb string, spans []Span) (muster.Job, error) {
	var job muster.Job
	err := c.do(ctx, call{
		method: http.MethodPost, path: jobPath(id) + verb,
		body: wire.Selection{Tasks: wire.FormatSpans(spans)}, out: &job,
	})
	return job, err
}

func jobPath(id muster.JobID) string { return "/jobs/" + id.String() }

// pages walks a list page by page.
func pages[T any](v url.Values, size int, fetch func(url.Values) ([]T, string, error)) iter.Seq2[T, error] {
	if size > 0 {
		v.Set("limit", strconv.Itoa(min(size, wire.MaxPage)))
	}
	return func(yield func(T, error) bool) {
		v := maps.Clone(v)
		for {
			rows, next, err := fetch(v)
			if err != nil {
				var zero T
				yield(zero, err)
				return
			}
			for _, r := range rows {
				if !yield(r, nil) {
					return
				}
			}
			if next == "" {
				return
			}
			v.Set("cursor", next)
		}
	}
}

func set(v url.Values, key, value string) {
	if value = strings.TrimSpace(value); value != "" {
		v.Set(key, value)
	}
}
