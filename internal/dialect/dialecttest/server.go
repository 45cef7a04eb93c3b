package dialecttest

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/serverd"
	"github.com/muster-dev/muster/internal/testkit"
	"github.com/muster-dev/muster/internal/workerd"
)

// The default tokens of Start.
const (
	AdminToken = "dialecttest-admin-token-0123456789"
	JoinToken  = "dialecttest-join-token-0123456789"
)

// Server is a real server in this process.
type Server struct {
	*serverd.Server

	Client *client.Client // of an administrator
	Stop   func()         // may be called more than once
}

// Start starts a server, which runs until the test ends. Empty fields of cfg get values for tests.
func Start(tb testing.TB, cfg serverd.Config) *Server {
	tb.Helper()
	if cfg.Data == "" {
		cfg.Data = tb.TempDir()
	}
	cfg.Listen, cfg.Version = cmp.Or(cfg.Listen, "127.0.0.1:0"), "test"
	cfg.AdminToken, cfg.JoinToken = cmp.Or(cfg.AdminToken, AdminToken), cmp.Or(cfg.JoinToken, JoinToken)
	server, err := serverd.New(tb.Context(), cfg, testkit.Logger(tb))
	if err != nil {
		tb.Fatal(err)
	}
	s := &Server{Server: server, Stop: Background(tb, server.Run)}
	if s.Client, err = client.New(server.URL(), cfg.AdminToken, client.Options{}); err != nil {
		tb.Fatal(err)
	}
	return s
}

// StartWorker starts one of Muster's own workers, which runs until the test ends, and waits until it is active. Empty fields of cfg get
// values for tests.
func (s *Server) StartWorker(tb testing.TB, cfg workerd.Config) (stop func()) {
	tb.Helper()
	if cfg.Data == "" {
		cfg.Data = tb.TempDir()
	}
	cfg.Server, cfg.Token, cfg.Version, cfg.Engine = s.URL(), s.JoinToken(), "test", workerd.EngineNone
	worker, err := workerd.New(cfg, testkit.Logger(tb))
	if err != nil {
		tb.Fatal(err)
	}
	stop = Background(tb, worker.Run)
	testkit.Await(tb, "worker "+cfg.Name+" to be active", func() bool {
		w, err := s.Client.Worker(tb.Context(), cfg.Name)
		return err == nil && w.State == muster.WorkerActive
	})
	return stop
}

// Background calls run until the test ends or stop is called, and waits for its end. An error of run fails the test.
func Background(tb testing.TB, run func(context.Context) error) (stop func()) {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context()))
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			tb.Errorf("ended with an error: %v", err)
		}
	})
	tb.Cleanup(stop)
	return stop
}
