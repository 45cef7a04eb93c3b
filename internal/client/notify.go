package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/wire"
)

type (
	// ProjectNotify are the notifications of a project.
	ProjectNotify = wire.ProjectNotify
	// Delivery is one request to a webhook.
	Delivery = wire.Delivery
)

func notifyPath(project string) string { return "/projects/" + url.PathEscape(project) + "/notify" }

// ProjectNotify returns the notifications of a project.
func (c *Client) ProjectNotify(ctx context.Context, project string) (ProjectNotify, error) {
	var p ProjectNotify
	err := c.do(ctx, call{method: http.MethodGet, path: notifyPath(project), out: &p, idempotent: true})
	return p, err
}

// SetProjectNotify replaces the notifications of a project.
func (c *Client) SetProjectNotify(ctx context.Context, project string, list []muster.Notify) (ProjectNotify, error) {
	if list == nil {
		list = []muster.Notify{}
	}
	var p ProjectNotify
	err := c.do(ctx, call{method: http.MethodPut, path: notifyPath(project), body: wire.Notifications{Notify: list}, out: &p, idempotent: true})
	return p, err
}

// DeleteProjectNotify removes the notifications of a project.
func (c *Client) DeleteProjectNotify(ctx context.Context, project string) error {
	return c.do(ctx, call{method: http.MethodDelete, path: notifyPath(project), idempotent: true})
}

// TestNotify sends a test to the notification of a project with a URL, or to all if that is "".
func (c *Client) TestNotify(ctx context.Context, project, to string) ([]Delivery, error) {
	var sent wire.Deliveries
	err := c.do(ctx, call{method: http.MethodPost, path: notifyPath(project) + "/test", body: wire.TestNotify{URL: to}, out: &sent})
	return sent.Deliveries, err
}

// DeliveryQuery selects deliveries. Its zero value selects all.
type DeliveryQuery struct {
	Project string
	Job     muster.JobID
	State   string // pending, delivered or failed
	Page    int    // rows fetched at once; default 100
}

// Deliveries lists the delivery log, newest first. An error ends the list.
func (c *Client) Deliveries(ctx context.Context, q DeliveryQuery) iter.Seq2[Delivery, error] {
	v := url.Values{}
	set(v, "project", q.Project)
	set(v, "state", q.State)
	if q.Job != 0 {
		v.Set("job", q.Job.String())
	}
	return pages(v, q.Page, func(v url.Values) ([]Delivery, string, error) {
		var page wire.Deliveries
		err := c.do(ctx, call{method: http.MethodGet, path: "/notifications", query: v, out: &page, idempotent: true})
		return page.Deliveries, page.Next, err
	})
}
