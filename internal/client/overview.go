package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/muster-dev/muster/internal/api/wire"
)

// Overview returns the whole fleet and its work at one moment, with the list of all GPUs if gpus is set.
func (c *Client) Overview(ctx context.Context, gpus bool) (wire.Overview, error) {
	q := url.Values{}
	if !gpus {
		q.Set("gpus", "false")
	}
	var o wire.Overview
	err := c.do(ctx, call{method: http.MethodGet, path: "/overview", query: q, out: &o, idempotent: true})
	return o, err
}
