package wslink

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/coder/websocket"

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
	conn, err := d.dial(ctx, link.PathSocket, "")
	if err != nil {
		return nil, err
	}
	return link.NewWorkerConn(conn), nil
}

// DialExec implements link.ExecDialer.
func (d *Dialer) DialExec(ctx context.Context, id string) (link.FrameConn, error) {
	return d.dial(ctx, link.PathExec+"?id="+url.QueryEscape(id), id)
}

// dial opens a connection, with the id of an Exec or "" for a session.
func (d *Dialer) dial(ctx context.Context, path, execID string) (link.FrameConn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	for {
		cred, err := d.Credentials.Current(ctx)
		if err != nil {
			return nil, link.DialError(d.Server, link.CredentialError(err))
		}
		conn, err := d.upgrade(ctx, path, cred.Token, link.OfferSeal(cred.Secret, execID))
		if link.IsRefusal(err) {
			if err = d.Credentials.Refused(cred.Token, err); err == nil {
				continue
			}
		}
		return conn, err
	}
}

func (d *Dialer) upgrade(ctx context.Context, path, token string, seal *link.Seal) (link.FrameConn, error) {
	header := http.Header{"Authorization": {"Bearer " + token}}
	seal.SetNonce(header)
	ws, resp, err := websocket.Dial(ctx, strings.TrimSuffix(d.Server, "/")+path, &websocket.DialOptions{ //nolint:bodyclose // the documentation of Dial excludes it
		HTTPClient: d.HTTP,
		HTTPHeader: header,
	})
	switch {
	case err == nil:
	case resp != nil && resp.StatusCode != http.StatusSwitchingProtocols:
		return nil, link.DialError(d.Server, link.ResponseError(resp))
	default:
		return nil, link.DialError(d.Server, err)
	}
	ws.SetReadLimit(link.MaxSealed)
	conn, err := seal.Worker(&socket{ws: ws}, resp.Header)
	if err != nil {
		_ = ws.CloseNow()
	}
	return conn, err
}
