package apitest

import (
	"fmt"
	"slices"
	"sync"
)

// answered is the requests that were answered, as the API tells those who measure it.
type answered struct {
	mu   sync.Mutex
	list []string
}

func (a *answered) measure(method, route string) func(status int, stream bool) {
	return func(status int, stream bool) {
		a.mu.Lock()
		defer a.mu.Unlock()
		line := fmt.Sprintf("%s %s %d", method, route, status)
		if stream {
			line += " stream"
		}
		a.list = append(a.list, line)
	}
}

// Answered lists the requests that were answered, such as "GET /api/v1/jobs/{job} 200".
func (s *Server) Answered() []string {
	s.done.mu.Lock()
	defer s.done.mu.Unlock()
	return slices.Clone(s.done.list)
}
