package egress

import (
	"context"
	"net"
)

// Server is the way out of one task's network, from before its start to its end. The zero Way is of a task
// that has none.
type Server struct {
	rules   *Rules
	logLine func(line string)
	cancel  context.CancelFunc
	done    chan struct{}
}

// NewServer reads what a task may reach, which is nothing for no hosts. say is for its log.
func NewServer(hosts []string, logLine func(line string)) (s Server, err error) {
	if len(hosts) > 0 {
		s.rules, err = Parse(hosts)
		s.logLine = logLine
	}
	return s, err
}

// Enabled reports whether Open is to be called.
func (s *Server) Enabled() bool { return s.rules != nil }

// Start lets the task out by what listens in its network, until Close. start starts what runs on.
func (s *Server) Start(l net.Listener, spawn func(func())) {
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel, s.done = cancel, make(chan struct{})
	spawn(func() {
		defer close(s.done)
		New(s.rules, s.logLine).Serve(ctx, l)
	})
}

// Close ends the task's connections, and returns when nothing is left of them.
func (s *Server) Close() {
	if s.cancel != nil {
		s.cancel()
		<-s.done
	}
}
