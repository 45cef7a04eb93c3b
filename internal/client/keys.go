package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/muster-dev/muster/internal/api/wire"
)

type (
	// Key is what may be shown of an API key.
	Key = wire.Key
	// NewKey asks for an API key.
	NewKey = wire.NewKey
	// MadeKey is a new API key with its secret.
	MadeKey = wire.MadeKey
	// Whoami says who the caller is and what the server is.
	Whoami = wire.Whoami
)

// CreateKey makes an API key. Its secret is in the answer and nowhere else.
func (c *Client) CreateKey(ctx context.Context, k NewKey) (MadeKey, error) {
	var created MadeKey
	err := c.do(ctx, call{method: http.MethodPost, path: "/keys", body: k, out: &created})
	return created, err
}

// Keys lists all API keys, without secrets.
func (c *Client) Keys(ctx context.Context) ([]Key, error) {
	var list wire.Keys
	err := c.do(ctx, call{method: http.MethodGet, path: "/keys", out: &list, idempotent: true})
	return list.Keys, err
}

// RevokeKey makes a key useless at once.
func (c *Client) RevokeKey(ctx context.Context, id string) error {
	return c.do(ctx, call{method: http.MethodDelete, path: "/keys/" + url.PathEscape(id)})
}

// Whoami says who the caller is and which version the server has.
func (c *Client) Whoami(ctx context.Context) (Whoami, error) {
	var w Whoami
	err := c.do(ctx, call{method: http.MethodGet, path: "/whoami", out: &w, idempotent: true})
	return w, err
}
