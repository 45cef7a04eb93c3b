package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/muster-dev/muster/internal/api/wire"
)

// The words of the API that the command line shows as they are.
type (
	Key     = wire.Key
	NewKey  = wire.NewKey
	MadeKey = wire.MadeKey
	Whoami  = wire.Whoami
)

// CreateKey makes an API key. Its secret is in the answer and nowhere else.
func (c *Client) CreateKey(ctx context.Context, k NewKey) (MadeKey, error) {
	var made MadeKey
	err := c.do(ctx, call{method: http.MethodPost, path: "/keys", body: k, out: &made})
	return made, err
}

// Keys lists all API keys, without secrets.
func (c *Client) Keys(ctx context.Context) ([]Key, error) {
	var list wire.Keys
	err := c.do(ctx, call{method: http.MethodGet, path: "/keys", out: &list, repeat: true})
	return list.Keys, err
}

// RevokeKey makes a key useless at once.
func (c *Client) RevokeKey(ctx context.Context, id string) error {
	return c.do(ctx, call{method: http.MethodDelete, path: "/keys/" + url.PathEscape(id)})
}

// Whoami says who the caller is and which version the server has.
func (c *Client) Whoami(ctx context.Context) (Whoami, error) {
	var w Whoami
	err := c.do(ctx, call{method: http.MethodGet, path: "/whoami", out: &w, repeat: true})
	return w, err
}
