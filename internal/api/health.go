package api

import (
	"context"
	"net/http"
	"time"

	"github.com/muster-dev/muster"
)

func (s *server) healthRoutes() {
	handle(s, route{id: "healthz", method: http.MethodGet, path: "/healthz", tag: "health", open: true,
		summary: "Say that the process answers"}, s.healthz)
	handle(s, route{id: "readyz", method: http.MethodGet, path: "/readyz", tag: "health", open: true,
		summary: "Say whether the server can do its work: engine and store answer"}, s.readyz)
}

type health struct {
	Status string `json:"status" enum:"ok"`
}

func (s *server) healthz(context.Context, *struct{}) (*body[health], error) {
	return answer(health{Status: "ok"}), nil
}

func (s *server) readyz(ctx context.Context, _ *struct{}) (*body[health], error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if _, err := s.Engine.Workers(ctx); err != nil {
		return nil, muster.Errorf(muster.Unavailable, "the engine does not answer: %w", err)
	}
	if _, err := s.Store.Workers(ctx); err != nil {
		return nil, muster.Errorf(muster.Unavailable, "the store does not answer: %w", err)
	}
	return answer(health{Status: "ok"}), nil
}
