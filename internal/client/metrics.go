package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/wire"
)

// Metrics returns what the attempts of a task reported so far, each in at most so many points, which keep its peaks; 0 means 1000.
func (c *Client) Metrics(ctx context.Context, id muster.TaskID, points int) (wire.Metrics, error) {
	q := url.Values{}
	if points > 0 {
		q.Set("points", strconv.Itoa(points))
	}
	var m wire.Metrics
	err := c.do(ctx, call{method: http.MethodGet, path: taskPath(id) + "/metrics", query: q, out: &m, idempotent: true})
	return m, err
}
