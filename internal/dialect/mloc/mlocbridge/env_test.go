package mlocbridge

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/muster-dev/muster/internal/builtin"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/dialect/bridge"
	"github.com/muster-dev/muster/internal/dialect/dialecttest"
	"github.com/muster-dev/muster/internal/dialect/mloc/mloctest"
	"github.com/muster-dev/muster/internal/serverd"
	"github.com/muster-dev/muster/internal/testkit"
	"github.com/muster-dev/muster/internal/workerd"
)

// testTimeout bounds every wait of these tests.
const testTimeout = 2 * time.Minute

// stderrLog is that of a bridge in a process of its own.
func stderrLog() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, nil))
}

// TestMain is also the worker's own program, which carries out the kinds that need nothing else.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == builtin.Command {
		os.Exit(builtin.Main(os.Args[2:]))
	}
	if len(os.Args) > 2 && os.Args[1] == "bridge" {
		bridgeProcess(os.Args[2])
	}
	os.Exit(m.Run())
}

// musterEnv is a Muster server with a worker, in this process.
type musterEnv struct {
	server *dialecttest.Server
	client *client.Client
}

func startFleet(tb testing.TB, workers ...string) *musterEnv {
	tb.Helper()
	s := dialecttest.Start(tb, serverd.Config{})
	for _, name := range workers {
		s.StartWorker(tb, workerd.Config{Name: name, Tags: []string{"cpu"}, ShutdownGrace: time.Second, Slots: 2})
	}
	return &musterEnv{server: s, client: s.Client}
}

// config is that of a bridge under test.
func (f *musterEnv) config(tb testing.TB, r *mloctest.Redis, dir string) Config {
	tb.Helper()
	return Config{
		Core:  bridge.Config{Client: f.client, Dir: filepath.Join(dir, "bridge"), Log: testkit.Logger(tb), ProgressInterval: 50 * time.Millisecond, RetryDelay: 20 * time.Millisecond},
		Redis: r.URL(), WorkerID: "w1", Results: filepath.Join(dir, "results"), Heartbeat: 100 * time.Millisecond, Tags: []string{"lab"}, Cost: 1,
		DeliveryTimeout: time.Second, ConfirmTimeout: 2 * time.Second, RetryDelay: 20 * time.Millisecond, AllowAnyPath: true,
	}
}

// startBridge runs a bridge until it is stopped, which is a polite stop.
func startBridge(tb testing.TB, cfg Config) (stop func()) {
	tb.Helper()
	b, err := New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return dialecttest.Background(tb, func(ctx context.Context) error { return b.Run(ctx, ctx) })
}

func read(tb testing.TB, path ...string) string {
	tb.Helper()
	b, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		tb.Fatal(err)
	}
	return string(b)
}
