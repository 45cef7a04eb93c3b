package wslink

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/coder/websocket"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/link"
)

// dialTimeout is for all steps to an open WebSocket.
const dialTimeout = 15 * time.Second

// Dialer opens sessions over WebSocket.
type Dialer struct {
	Server      string // base URL, such as "https://muster.example:7777"
	Credentials link.Credentials
	HTTP        *http.Client // nil means http.DefaultClient
}

// Dial implements link.Dialer.
func (d *Dialer) Dial(ctx context.Context) (link.WorkerConn, error) {
	conn, _, err := d.dial(ctx, link.PathSocket)
	if err != nil {
		return nil, err
	}
	return link.NewWorkerConn(conn), nil
}

// DialExec implements link.ExecDialer.
func (d *Dialer) DialExec(ctx context.Context, id string) (link.FrameConn, error) {
	conn, _, err := d.dial(ctx, link.PathExec+"?id="+url.QueryEscape(id))
	return conn, err
}

// dial opens a connection, and returns the credential with which it was opened.
func (d *Dialer) dial(ctx context.Context, path string) (link.FrameConn, link.Credential, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	for {
		cred, err := d.Credentials.Current(ctx)
		if err != nil {
			return nil, cred, link.DialError(d.Server, err)
		}
		conn, err := d.upgrade(ctx, path, cred.Token)
		if muster.CodeOf(err) == muster.Unauthenticated {
			if err = d.Credentials.Refused(cred.Token, err); err == nil {
				continue
			}
		}
		return conn, cred, err
	}
}

func (d *Dialer) upgrade(ctx context.Context, path, token string) (link.FrameConn, error) {
	ws, resp, err := websocket.Dial(ctx, strings.TrimSuffix(d.Server, "/")+path, &websocket.DialOptions{ //nolint:bodyclose // the documentation of Dial excludes it
		HTTPClient: d.HTTP,
		HTTPHeader: http.Header{"Authorization": {"Bearer " + token}},
	})
	switch {
	case err == nil:
	case resp != nil && resp.StatusCode != http.StatusSwitchingProtocols:
		return nil, link.DialError(d.Server, link.ResponseError(resp))
	default:
		return nil, link.DialError(d.Server, err)
	}
	ws.SetReadLimit(link.MaxFrame)
	return &socket{ws: ws}, nil
}
