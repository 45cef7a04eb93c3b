package fleet_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/dialect"
	"github.com/muster-dev/muster/internal/dialect/dialecttest"
	"github.com/muster-dev/muster/internal/dialect/fleet"
	"github.com/muster-dev/muster/internal/serverd"
	"github.com/muster-dev/muster/internal/testkit"
)

// testTimeout bounds each wait of these tests.
const testTimeout = 60 * time.Second

// env is a server with a gateway without a protocol: the test calls its fleet.
type env struct {
	t         *testing.T
	dir       string
	configure func(*fleet.Config)
	fleet     *fleet.Fleet
	client    *client.Client
	log       *slog.Logger
	stop      func()
}

// fleetGateway is a gateway that only has a fleet.
type fleetGateway struct{ *fleet.Fleet }

func (fleetGateway) URL() string  { return "tiny://" }
func (fleetGateway) Ready() error { return nil }

func newEnv(t *testing.T, change func(*fleet.Config)) *env {
	t.Helper()
	if change == nil {
		change = func(*fleet.Config) {}
	}
	w := &env{t: t, dir: t.TempDir(), configure: change, log: testkit.Logger(t)}
	w.start()
	return w
}

// start starts the server in the same directory.
func (w *env) start() {
	w.t.Helper()
	system := dialect.System{Name: "tiny", Title: "Tiny", Address: ":1", New: func(_ context.Context, deps dialect.Deps) (dialect.Gateway, error) {
		cfg := fleet.Config{
			Server: deps.Server, Dir: filepath.Join(deps.Dir, "fleet"), Log: deps.Log, System: "tiny",
			SilenceTimeout: time.Hour, Projects: deps.Config.Projects(), Kinds: deps.Config.Kinds, Price: deps.Config.Price,
		}
		w.configure(&cfg)
		f, err := fleet.Open(cfg)
		w.fleet = f
		return fleetGateway{f}, err
	}}
	server := dialecttest.Start(w.t, serverd.Config{
		Data: w.dir, Heartbeat: muster.Duration(200 * time.Millisecond), Dialects: []dialect.Config{{Name: "tiny", Address: "127.0.0.1:0"}}, Systems: []dialect.System{system},
	})
	w.client, w.stop = server.Client, server.Stop
}

// crash stops the server. The next one starts with the files that a kill -9 now leaves.
func (w *env) crash() {
	w.t.Helper()
	dir := filepath.Join(w.t.TempDir(), "copy")
	if err := os.CopyFS(dir, os.DirFS(w.dir)); err != nil {
		w.t.Fatal(err)
	}
	w.stop()
	w.dir = dir
}

// newFacts returns facts of a worker that runs echo and script.
func newFacts(id string) fleet.Facts {
	return fleet.Facts{ID: id, Kinds: []string{"echo", "script"}, Resources: muster.Resources{CPUs: 4, Memory: 8 << 30, Disk: 1 << 30, Slots: 2}}
}

func (w *env) register(f fleet.Facts) *fleet.Worker {
	w.t.Helper()
	worker, err := w.fleet.Register(w.t.Context(), f)
	if err != nil {
		w.t.Fatalf("register %s: %v", f.ID, err)
	}
	return worker
}

// submit submits a job of one echo.
func (w *env) submit(change func(*muster.Spec)) muster.Job {
	w.t.Helper()
	spec := &muster.Spec{Tasks: []muster.TaskSpec{{Kind: "echo", Input: []byte(`{"n":1}`)}}}
	if change != nil {
		change(spec)
	}
	job, err := w.client.Submit(w.t.Context(), spec, client.SubmitOptions{})
	if err != nil {
		w.t.Fatalf("submit: %v", err)
	}
	return job
}

// waitOffered waits until the worker holds a task.
func (w *env) waitOffered(worker *fleet.Worker) *fleet.Task {
	w.t.Helper()
	end := time.After(testTimeout)
	for {
		if tasks := worker.Tasks(); len(tasks) > 0 {
			return tasks[0]
		}
		select {
		case <-worker.Changed():
		case <-time.After(50 * time.Millisecond):
			worker.Touch(nil) // as one that asks again: on a busy machine the offer may take longer than the timeout of silence
		case <-end:
			w.t.Fatalf("worker %s was offered nothing", worker.ID())
		}
	}
}

func (w *env) task(job muster.Job) muster.Task {
	w.t.Helper()
	t, err := w.client.Task(w.t.Context(), muster.TaskID{Job: job.ID})
	if err != nil {
		w.t.Fatalf("task of job %d: %v", job.ID, err)
	}
	return t
}

// waitState waits until the job's task is in the state.
func (w *env) waitState(job muster.Job, state muster.TaskState) muster.Task {
	w.t.Helper()
	var last muster.Task
	testkit.Await(w.t, "task "+job.ID.String()+".0 is "+state.String(), func() bool { last = w.task(job); return last.State == state })
	return last
}

func (w *env) workerState(name string) muster.WorkerState {
	w.t.Helper()
	list, err := w.client.Workers(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	for _, worker := range list {
		if worker.Name == name {
			return worker.State
		}
	}
	return ""
}
