package apitest

import (
	"fmt"
	"slices"
	"sync"
)

// requestLog collects the answered requests from api.Config.ObserveRequest.
type requestLog struct {
	mu    sync.Mutex
	lines []string
}

func (a *requestLog) observe(method, route string) func(status int, stream bool) {
	return func(status int, stream bool) {
		a.mu.Lock()
		defer a.mu.Unlock()
		line := fmt.Sprintf("%s %s %d", method, route, status)
		if stream {
			line += " stream"
		}
		a.lines = append(a.lines, line)
	}
}

// AnsweredRequests lists the answered requests, such as "GET /api/v1/jobs/{job} 200".
func (s *Server) AnsweredRequests() []string {
	s.requests.mu.Lock()
	defer s.requests.mu.Unlock()
	return slices.Clone(s.requests.lines)
}
