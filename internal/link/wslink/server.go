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
	accept   link.Accept
	group    link.SessionGroup
}

// NewServer returns a Server that identifies requests by identify and passes each session to accept.
func NewServer(identify link.Identify, accept link.Accept) *Server {
	return &Server{identify: identify, accept: accept}
}

// Run accepts sessions until ctx ends, then cancels them and waits for their end.
func (s *Server) Run(ctx context.Context) error { return s.group.Run(ctx) }

// ServeHTTP refuses the request, or upgrades it and returns when its session ends.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	worker, err := s.identify(r)
	if err != nil {
		link.WriteError(w, err)
		return
	}
	err = s.group.Do(r.Context(), func(ctx context.Context) {
		ws, err := websocket.Accept(w, r, nil)
		if err != nil {
			return // Accept has replied
		}
		ws.SetReadLimit(link.MaxFrame)
		s.accept(ctx, link.NewServerConn(&socket{ws: ws}, link.RemoteIPOf(r)), worker)
	})
	if err != nil {
		link.WriteError(w, err)
	}
}
