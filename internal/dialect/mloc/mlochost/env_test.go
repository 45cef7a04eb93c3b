package mlochost_test

import (
	"context"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/builtin"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/dialect"
	"github.com/muster-dev/muster/internal/dialect/dialecttest"
	"github.com/muster-dev/muster/internal/dialect/mloc/mlochost"
	"github.com/muster-dev/muster/internal/dialect/mloc/mloctest"
	"github.com/muster-dev/muster/internal/serverd"
	"github.com/muster-dev/muster/internal/testkit"
	"github.com/muster-dev/muster/internal/workerd"
)

// testTimeout bounds every wait of these tests.
const testTimeout = time.Minute

// TestMain is also the worker's own program, which carries out the kinds that need nothing else.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == builtin.Command {
		os.Exit(builtin.Main(os.Args[2:]))
	}
	os.Exit(m.Run())
}

// env is a Muster server with the gateway, and Redis.
type env struct {
	tb      testing.TB
	redis   *mloctest.Redis
	server  *dialecttest.Server
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
		tb: tb, redis: mloctest.StartRedis(tb), dir: tb.TempDir(), listen: "127.0.0.1:0", log: testkit.Logger(tb),
	}
	w.config = dialect.Config{Name: "mloc", Address: "127.0.0.1:0", Options: map[string]string{"redis": w.redis.URL(), "watchdog_grace": "2"}}
	for k, v := range options {
		if k == "key" {
			w.config.KeyRequired = true
			continue
		}
		w.config.Options[k] = v
	}
	w.start()
	testkit.Await(tb, "the gateway has Redis", func() bool { return w.gateway.Ready() == nil })
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
	w.server = dialecttest.Start(w.tb, serverd.Config{
		Listen: w.listen, Data: w.dir, AdminToken: adminToken, JoinToken: "mloc-test-join-token-0123456789", Heartbeat: muster.Duration(300 * time.Millisecond),
		Dialects: []dialect.Config{w.config}, Systems: []dialect.System{system},
	})
	w.admin, w.stop = w.server.Client, w.server.Stop
	w.listen = w.server.URL()[len("http://"):]
	w.config.Address = w.gateway.Port()[len("http://"):]
}

// worker starts one of Muster's own.
func (w *env) worker(name string) {
	w.tb.Helper()
	w.server.StartWorker(w.tb, workerd.Config{Name: name, ShutdownGrace: time.Second, Slots: 2})
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
	testkit.Await(w.tb, id+" is active", func() bool {
		one, ok := w.foreignWorker(id)
		return ok && one.State == muster.WorkerActive
	})
}

// newFast is New of a system for tests.
func newFast(ctx context.Context, deps dialect.Deps) (dialect.Gateway, error) {
	return mlochost.NewFast(ctx, deps)
}
