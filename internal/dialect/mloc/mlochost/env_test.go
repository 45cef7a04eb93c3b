package mlochost_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/builtin"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/dialect"
	"github.com/muster-dev/muster/internal/dialect/mloc/mlochost"
	"github.com/muster-dev/muster/internal/serverd"
	"github.com/muster-dev/muster/internal/workerd"
)

// testTimeout bounds every wait of these tests.
const testTimeout = time.Minute

// TestMain is also the worker's own program, which carries out the kinds that need nothing else.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "do" {
		os.Exit(builtin.Main(os.Args[2:]))
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
			tb.Fatal("redis-server is missing: install it with scripts/need redis-server")
		}
		tb.Skip("redis-server is not installed: scripts/need redis-server")
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
	defer func() { _ = c.Close() }()
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

// background runs something until the test ends, or until the returned func stops it.
func background(tb testing.TB, run func(context.Context) error) (stop func()) {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context()))
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil && !errors.Is(err, context.Canceled) {
				tb.Errorf("it ended with %v", err)
			}
		case <-time.After(testTimeout):
			tb.Error("it does not end")
		}
	})
	tb.Cleanup(stop)
	return stop
}

// env is a Muster server with the gateway, and Redis.
type env struct {
	tb      testing.TB
	redis   *redisServer
	server  *serverd.Server
	admin   *client.Client
	dir     string
	listen  string
	config  dialect.Config
	gateway *mlochost.Gateway
	stop    func() // of the server
	log     *slog.Logger
}

const adminToken = "mloc-test-admin-token-0123456789"

func newEnv(tb testing.TB, options map[string]string) *env {
	tb.Helper()
	w := &env{
		tb: tb, redis: startRedis(tb), dir: tb.TempDir(), listen: "127.0.0.1:0", log: slog.New(slog.NewTextHandler(tb.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
	w.config = dialect.Config{Name: "mloc", Address: "127.0.0.1:0", Options: map[string]string{"redis": w.redis.url(), "watchdog_grace": "2"}}
	for k, v := range options {
		if k == "key" {
			w.config.KeyRequired = true
			continue
		}
		w.config.Options[k] = v
	}
	w.start()
	waitFor(tb, "the gateway has Redis", func() bool { return w.gateway.Ready() == nil })
	return w
}

// start starts the server on the world's folder, again on the same ports.
func (w *env) start() {
	w.tb.Helper()
	system := mlochost.System()
	system.New = func(ctx context.Context, deps dialect.Deps) (dialect.Gateway, error) {
		g, err := mlochost.NewFast(ctx, deps)
		w.gateway = g
		return g, err
	}
	var err error
	w.server, err = serverd.New(w.tb.Context(), serverd.Config{
		Listen: w.listen, Data: w.dir, Version: "test", AdminToken: adminToken, JoinToken: "mloc-test-join-token-0123456789", Heartbeat: muster.Duration(300 * time.Millisecond),
		Dialects: []dialect.Config{w.config}, Systems: []dialect.System{system},
	}, w.log)
	if err != nil {
		w.tb.Fatal(err)
	}
	w.stop = background(w.tb, w.server.Run)
	w.listen = w.server.URL()[len("http://"):]
	w.config.Address = w.gateway.Port()[len("http://"):]
	if w.admin, err = client.New(w.server.URL(), adminToken, client.Options{}); err != nil {
		w.tb.Fatal(err)
	}
}

// worker starts one of Muster's own.
func (w *env) worker(name string) {
	w.tb.Helper()
	one, err := workerd.New(workerd.Config{
		Server: w.server.URL(), Token: "mloc-test-join-token-0123456789", Name: name, Data: w.tb.TempDir(), Version: "test", ShutdownGrace: time.Second, Slots: 2, Engine: workerd.EngineNone,
	}, w.log)
	if err != nil {
		w.tb.Fatal(err)
	}
	background(w.tb, one.Run)
}

// submit submits a job of one task to the server.
func (w *env) submit(t muster.TaskSpec) muster.Job {
	w.tb.Helper()
	job, err := w.admin.Submit(w.tb.Context(), &muster.Spec{Name: "test", Tasks: []muster.TaskSpec{t}}, client.SubmitOptions{})
	if err != nil {
		w.tb.Fatal(err)
	}
	return job
}

// waitJob waits until a job's only task ended.
func (w *env) waitJob(job muster.JobID) muster.Task {
	w.tb.Helper()
	ctx, cancel := context.WithTimeout(w.tb.Context(), testTimeout)
	defer cancel()
	if _, err := w.admin.Wait(ctx, job); err != nil {
		w.tb.Fatal(err)
	}
	t, err := w.admin.Task(ctx, muster.TaskID{Job: job})
	if err != nil {
		w.tb.Fatal(err)
	}
	return t
}

// foreignWorker returns the worker of the server that a worker of MLOC is.
func (w *env) foreignWorker(id string) (muster.Worker, bool) {
	list, err := w.admin.Workers(w.tb.Context())
	if err != nil {
		return muster.Worker{}, false
	}
	for _, one := range list {
		if one.Labels["mloc.worker"] == id {
			return one, true
		}
	}
	return muster.Worker{}, false
}

// active waits until a worker of MLOC is given tasks.
func (w *env) active(id string) {
	w.tb.Helper()
	waitFor(w.tb, id+" is active", func() bool {
		one, ok := w.foreignWorker(id)
		return ok && one.State == muster.WorkerActive
	})
}

// newFast is New of a system for tests.
func newFast(ctx context.Context, deps dialect.Deps) (dialect.Gateway, error) {
	return mlochost.NewFast(ctx, deps)
}
