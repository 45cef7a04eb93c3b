package dtf_test

import (
	"context"
	"log/slog"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/builtin"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/serverd"
	"github.com/muster-dev/muster/internal/workerd"
)

// testTimeout bounds every wait of these tests.
const testTimeout = 2 * time.Minute

// TestMain is also the worker's own program, which carries out the kinds that need nothing else.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "do" {
		os.Exit(builtin.Main(os.Args[2:]))
	}
	os.Exit(m.Run())
}

// waitFor waits until ok.
func waitFor(tb testing.TB, desc string, ok func() bool) {
	tb.Helper()
	for deadline := time.Now().Add(testTimeout); !ok(); {
		if time.Now().After(deadline) {
			tb.Fatalf("waited in vain: %s", desc)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func logger(tb testing.TB) *slog.Logger {
	tb.Helper()
	return slog.New(slog.NewTextHandler(tb.Output(), &slog.HandlerOptions{Level: slog.LevelError}))
}

// background runs something until the test ends, or until the returned func stops it.
func background(tb testing.TB, run func(context.Context) error) (stop func()) {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		select {
		case err := <-done:
			if err != nil {
				tb.Errorf("it ended with: %v", err)
			}
		case <-time.After(testTimeout):
			tb.Error("it does not stop")
		}
	}
	tb.Cleanup(stop)
	return stop
}

// env is a Muster server in this process.
type env struct {
	server *serverd.Server
	client *client.Client
	data   string // of its worker
}

func startServer(tb testing.TB, cfg serverd.Config) *env {
	tb.Helper()
	cfg.Listen, cfg.Version = "127.0.0.1:0", "test"
	if cfg.Data == "" {
		cfg.Data = tb.TempDir()
	}
	s, err := serverd.New(tb.Context(), cfg, logger(tb))
	if err != nil {
		tb.Fatal(err)
	}
	background(tb, s.Run)
	c, err := client.New(s.URL(), s.AdminToken(), client.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	return &env{server: s, client: c, data: tb.TempDir()}
}

// worker adds a real worker that runs the kinds whose program is Muster's own, until the test ends or it is stopped.
func (w *env) worker(tb testing.TB) (stop func()) {
	tb.Helper()
	own, err := workerd.New(workerd.Config{
		Server: w.server.URL(), Token: w.server.JoinToken(), Name: "here", Data: w.data, Version: "test", Engine: workerd.EngineNone, ShutdownGrace: time.Second,
	}, logger(tb))
	if err != nil {
		tb.Fatal(err)
	}
	stop = background(tb, own.Run)
	waitFor(tb, "the worker is there", func() bool {
		all, err := w.client.Workers(tb.Context())
		return err == nil && slices.ContainsFunc(all, func(w muster.Worker) bool { return w.State == muster.WorkerActive })
	})
	return stop
}
