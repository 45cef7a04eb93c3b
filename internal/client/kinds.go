package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/muster-dev/muster/internal/api/wire"
)

// Kinds lists the kinds of tasks that a job may name, by name.
func (c *Client) Kinds(ctx context.Context) ([]wire.Kind, error) {
	var list wire.Kinds
	err := c.do(ctx, call{method: http.MethodGet, path: "/kinds", out: &list, idempotent: true})
	return list.Kinds, err
}

// Kind returns one kind with the workers that offer it. The name must be a whole one.
func (c *Client) Kind(ctx context.Context, name string) (wire.Kind, error) {
	var k wire.Kind
	err := c.do(ctx, call{method: http.MethodGet, path: "/kinds/" + url.PathEscape(name), out: &k, idempotent: true})
	return k, err
}
