package wslink

import (
	"context"
	"net/http"

	"github.com/coder/websocket"

	"github.com/muster-dev/muster/internal/link"
)

// Server upgrades requests and owns the sessions that follow.
type Server struct {
	identify link.Identify
	accept   link.AcceptFrames
	group    link.SessionGroup
}

// NewServer returns a Server that identifies requests by identify and passes each session to accept.
func NewServer(identify link.Identify, accept link.Accept) *Server {
	return NewFrameServer(identify, link.AcceptSessions(accept))
}

// NewFrameServer returns a Server that passes each connection to accept.
func NewFrameServer(identify link.Identify, accept link.AcceptFrames) *Server {
	return &Server{identify: identify, accept: accept}
}

// Run accepts sessions until ctx ends, then cancels them and waits for their end.
func (s *Server) Run(ctx context.Context) error { return s.group.Run(ctx) }

// ServeHTTP refuses the request, or upgrades it and returns when its session ends.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	peer, err := s.identify(r)
	if err != nil {
		link.WriteError(w, err)
		return
	}
	err = s.group.Do(r.Context(), func(ctx context.Context) {
		seal := link.AcceptSeal(r, peer.Secret)
		seal.SetNonce(w.Header())
		ws, err := websocket.Accept(w, r, nil)
		if err != nil {
			return // Accept has replied
		}
		ws.SetReadLimit(link.MaxSealed)
		s.accept(ctx, r, seal.Server(&socket{ws: ws}), peer)
	})
	if err != nil {
		link.WriteError(w, err)
	}
}

// Upgrade makes a connection of the request of a client that asks for a subprotocol. Frames have at most limit bytes. It refuses pages of other
// sites. After an error it has replied.
func Upgrade(w http.ResponseWriter, r *http.Request, subprotocol string, limit int64) (link.FrameConn, error) {
	ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{subprotocol}})
	if err != nil {
		return nil, err
	}
	ws.SetReadLimit(limit)
	return &socket{ws: ws}, nil
}

// DialClient opens the connection of a client, with Upgrade at the other side. A response other than the upgrade is passed to refused, which
// returns the error.
func DialClient(ctx context.Context, url string, header http.Header, client *http.Client, subprotocol string, limit int64, refused func(*http.Response) error) (link.FrameConn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	ws, resp, err := websocket.Dial(ctx, url, &websocket.DialOptions{HTTPClient: client, HTTPHeader: header, Subprotocols: []string{subprotocol}}) //nolint:bodyclose // the documentation of Dial excludes it
	switch {
	case err == nil:
		ws.SetReadLimit(limit)
		return &socket{ws: ws}, nil
	case resp != nil && resp.StatusCode != http.StatusSwitchingProtocols:
		return nil, refused(resp)
	}
	return nil, err
}
