package client

import (
	"context"
	"net/http"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/execwire"
	"github.com/muster-dev/muster/internal/link/wslink"
)

// Exec opens the connection of a command in a running task, or of a copy, and sends start. The caller calls Run. It is not retried.
func (c *Client) Exec(ctx context.Context, id muster.TaskID, start *execwire.Start) (*execwire.Conn, error) {
	req, err := c.newRequest(ctx, http.MethodGet, "/tasks/"+id.String()+"/exec", nil, http.Header{}, nil)
	if err != nil {
		return nil, err
	}
	t, err := wslink.DialClient(ctx, req.URL.String(), req.Header, c.opts.HTTP, execwire.Subprotocol, execwire.MaxFrame, func(resp *http.Response) error { return c.responseError(resp) })
	if err != nil {
		if muster.CodeOf(err) != muster.Internal {
			return nil, err
		}
		return nil, c.unreachableError(ctx, err)
	}
	conn := execwire.NewConn(t)
	if err := conn.Send(ctx, &execwire.Frame{Start: start}); err != nil {
		_ = t.Close()
		return nil, err
	}
	return conn, nil
}
