package egress

import (
	"context"
	"net"
)

// Server serves the egress proxy of one task, from before its start to its end. The zero Server is for a task without a proxy.
type Server struct {
	rules   *Rules
	logLine func(line string)
	cancel  context.CancelFunc
	done    chan struct{}
}

// NewServer parses the hosts that the task may reach; there is no proxy for no hosts. logLine writes to its log.
func NewServer(hosts []string, logLine func(line string)) (s Server, err error) {
	if len(hosts) > 0 {
		s.rules, err = Parse(hosts)
		s.logLine = logLine
	}
	return s, err
}

// Enabled reports whether the task has a proxy: Start is to be called.
func (s *Server) Enabled() bool { return s.rules != nil }

// Start serves the proxy on a listener in the task's network, until Close, on a goroutine that spawn starts.
func (s *Server) Start(l net.Listener, spawn func(func())) {
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel, s.done = cancel, make(chan struct{})
	spawn(func() {
		defer close(s.done)
		New(s.rules, s.logLine).Serve(ctx, l)
	})
}

// Close closes the task's connections, and returns when they have ended.
func (s *Server) Close() {
	if s.cancel != nil {
		s.cancel()
		<-s.done
	}
}
