package mlocbridge

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/muster-dev/muster/internal/builtin"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/dialect/bridge"
	"github.com/muster-dev/muster/internal/serverd"
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
	if len(os.Args) > 1 && os.Args[1] == "do" {
		os.Exit(builtin.Main(os.Args[2:]))
	}
	if len(os.Args) > 2 && os.Args[1] == "bridge" {
		bridgeProcess(os.Args[2])
	}
	os.Exit(m.Run())
}

// redisServer is a real redis-server on a port of its own, which it keeps over restarts.
type redisServer struct {
	tb   testing.TB
	addr string
	cmd  *exec.Cmd
}

func startRedis(tb testing.TB) *redisServer {
	tb.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		if os.Getenv("CI") == "true" {
			tb.Fatal("redis-server is missing: install it with scripts/need redis")
		}
		tb.Skip("redis-server is not installed: apt-get install redis-server")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	r := &redisServer{tb: tb, addr: l.Addr().String()}
	_ = l.Close()
	tb.Cleanup(r.kill)
	r.start()
	return r
}

func (r *redisServer) url() string { return "redis://" + r.addr + "/0" }

func (r *redisServer) start() {
	r.tb.Helper()
	_, port, _ := net.SplitHostPort(r.addr)
	r.cmd = exec.Command("redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", r.tb.TempDir())
	if err := r.cmd.Start(); err != nil {
		r.tb.Fatal(err)
	}
	c := r.client()
	defer c.Close()
	waitFor(r.tb, "redis-server answers", func() bool { return c.Ping(r.tb.Context()).Err() == nil })
}

// kill is kill -9: nothing of it is kept.
func (r *redisServer) kill() {
	if r.cmd != nil {
		_ = r.cmd.Process.Signal(syscall.SIGKILL)
		_ = r.cmd.Wait()
		r.cmd = nil
	}
}

func (r *redisServer) client() *redis.Client {
	return redis.NewClient(&redis.Options{Addr: r.addr, MaxRetries: -1, Protocol: 2, DisableIdentity: true})
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

// musterEnv is a Muster server with a worker, in this process.
type musterEnv struct {
	server *serverd.Server
	client *client.Client
}

// logger is a log for what is expected to go wrong.
func logger(tb testing.TB) *slog.Logger {
	tb.Helper()
	return slog.New(slog.NewTextHandler(tb.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
}

func startFleet(tb testing.TB, workers ...string) *musterEnv {
	tb.Helper()
	s, err := serverd.New(tb.Context(), serverd.Config{Listen: "127.0.0.1:0", Data: tb.TempDir(), Version: "test"}, logger(tb))
	if err != nil {
		tb.Fatal(err)
	}
	background(tb, s.Run)
	c, err := client.New(s.URL(), s.AdminToken(), client.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	for _, name := range workers {
		w, err := workerd.New(workerd.Config{
			Server: s.URL(), Token: s.JoinToken(), Name: name, Tags: []string{"cpu"}, Data: tb.TempDir(), Version: "test", ShutdownGrace: time.Second, Slots: 2, Engine: workerd.EngineNone,
		}, logger(tb))
		if err != nil {
			tb.Fatal(err)
		}
		background(tb, w.Run)
	}
	waitFor(tb, "the workers are there", func() bool {
		list, err := c.Workers(tb.Context())
		return err == nil && len(list) == len(workers)
	})
	return &musterEnv{server: s, client: c}
}

// background runs something until the test ends, or until the returned func stops it.
func background(tb testing.TB, run func(context.Context) error) (stop func()) {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	var err error
	group.Go(func() { err = run(ctx) })
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			group.Wait()
			if err != nil && !errors.Is(err, context.Canceled) {
				tb.Errorf("it ended with: %v", err)
			}
		})
	}
	tb.Cleanup(stop)
	return stop
}

// config is that of a bridge under test.
func (f *musterEnv) config(tb testing.TB, r *redisServer, dir string) Config {
	tb.Helper()
	return Config{
		Core:  bridge.Config{Client: f.client, Dir: filepath.Join(dir, "bridge"), Log: logger(tb), ProgressInterval: 50 * time.Millisecond, RetryDelay: 20 * time.Millisecond},
		Redis: r.url(), WorkerID: "w1", Results: filepath.Join(dir, "results"), Heartbeat: 100 * time.Millisecond, Tags: []string{"lab"}, Cost: 1,
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
	return background(tb, func(ctx context.Context) error { return b.Run(ctx, ctx) })
}

func read(tb testing.TB, path ...string) string {
	tb.Helper()
	b, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		tb.Fatal(err)
	}
	return string(b)
}
