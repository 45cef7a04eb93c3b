package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/wire"
)

// HistoryQuery selects a part of the history of the fleet's load. Its zero value selects the last hour of the whole fleet.
type HistoryQuery struct {
	Worker   string // id, or name if only one has it; "" means the fleet
	From, To time.Time
	Points   int // at most about so many; 0 means 300
}

// History returns how the fleet or a worker was loaded.
func (c *Client) History(ctx context.Context, q HistoryQuery) (wire.History, error) {
	v := url.Values{}
	set(v, "worker", q.Worker)
	if !q.From.IsZero() {
		v.Set("from", q.From.Format(time.RFC3339Nano))
	}
	if !q.To.IsZero() {
		v.Set("to", q.To.Format(time.RFC3339Nano))
	}
	if q.Points > 0 {
		v.Set("points", strconv.Itoa(q.Points))
	}
	var h wire.History
	err := c.do(ctx, call{method: http.MethodGet, path: "/history", query: v, out: &h, idempotent: true})
	return h, err
}

// States returns the state of every task of a job, or of those from number span.First to span.Last.
func (c *Client) States(ctx context.Context, id muster.JobID, span *Span) (wire.States, error) {
	v := url.Values{}
	if span != nil {
		v.Set("from", strconv.Itoa(span.First))
		v.Set("to", strconv.Itoa(span.Last))
	}
	var s wire.States
	err := c.do(ctx, call{method: http.MethodGet, path: jobPath(id) + "/states", query: v, out: &s, idempotent: true})
	return s, err
}

// JobUsage returns what all ended attempts of a job used together.
func (c *Client) JobUsage(ctx context.Context, id muster.JobID) (wire.JobUsage, error) {
	var u wire.JobUsage
	err := c.do(ctx, call{method: http.MethodGet, path: jobPath(id) + "/usage", out: &u, idempotent: true})
	return u, err
}

// PreviousJob returns the newest job of the same project and name that is older, with its spec and groups.
func (c *Client) PreviousJob(ctx context.Context, id muster.JobID) (muster.Job, error) {
	var job muster.Job
	err := c.do(ctx, call{method: http.MethodGet, path: jobPath(id) + "/previous", out: &job, idempotent: true})
	return job, err
}
