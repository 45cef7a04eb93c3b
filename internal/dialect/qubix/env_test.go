package qubix_test

import (
	"context"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/builtin"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/dialect"
	"github.com/muster-dev/muster/internal/dialect/dialecttest"
	"github.com/muster-dev/muster/internal/serverd"
	"github.com/muster-dev/muster/internal/testkit"
	"github.com/muster-dev/muster/internal/workerd"
)

// TestMain is also the worker's own program, which carries out the kinds that need nothing else.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == builtin.Command {
		os.Exit(builtin.Main(os.Args[2:]))
	}
	os.Exit(m.Run())
}

// env is a Muster server with a QUBIX gateway.
type env struct {
	tb     testing.TB
	dir    string
	config dialect.Config
	server *dialecttest.Server
	client *client.Client
	url    string // of the gateway
	stop   func()
}

const adminToken = "qubix-test-admin-token-0123456789"

func newEnv(tb testing.TB, change func(*dialect.Config)) *env {
	tb.Helper()
	w := &env{tb: tb, dir: tb.TempDir(), config: dialect.Config{Name: "qubix", Address: "127.0.0.1:0", Options: map[string]string{}}}
	if change != nil {
		change(&w.config)
	}
	w.start()
	return w
}

// start starts the server in the same directory. The gateway keeps its port.
func (w *env) start() {
	w.tb.Helper()
	w.server = dialecttest.Start(w.tb, serverd.Config{Data: w.dir, AdminToken: adminToken, Dialects: []dialect.Config{w.config}})
	w.client, w.stop, w.url = w.server.Client, w.server.Stop, w.server.GatewayURL("qubix")
	w.config.Address = strings.TrimPrefix(w.url, "http://")
}

// worker adds one of Muster's own.
func (w *env) worker(name string) {
	w.tb.Helper()
	w.server.StartWorker(w.tb, workerd.Config{Name: name, Slots: 2})
}

func (w *env) newClient() *fakeClient { return &fakeClient{tb: w.tb, base: w.url} }

func (w *env) submit(t muster.TaskSpec) muster.JobID {
	w.tb.Helper()
	job, err := w.client.Submit(w.tb.Context(), &muster.Spec{Name: "test", Tasks: []muster.TaskSpec{t}}, client.SubmitOptions{})
	if err != nil {
		w.tb.Fatalf("submit: %v", err)
	}
	return job.ID
}

func (w *env) task(id muster.JobID) muster.Task {
	w.tb.Helper()
	t, err := w.client.Task(w.tb.Context(), muster.TaskID{Job: id})
	if err != nil {
		w.tb.Fatal(err)
	}
	return t
}

// waitState waits until a job's task is in a state.
func (w *env) waitState(id muster.JobID, state muster.TaskState) muster.Task {
	w.tb.Helper()
	var t muster.Task
	testkit.Await(w.tb, "job "+id.String()+" is "+state.String(), func() bool {
		t = w.task(id)
		if t.State != state && t.State.Final() {
			w.tb.Fatalf("job %d is %s (%s: %s), not %s", id, t.State, t.Reason, t.Message, state)
		}
		return t.State == state
	})
	return t
}

// log is what a task has printed so far.
func (w *env) log(id muster.JobID) string {
	w.tb.Helper()
	return w.readLog(id, client.LogOptions{})
}

// fullLog is all that a task printed that has ended: the end of a log may come after the task's.
func (w *env) fullLog(id muster.JobID) string {
	w.tb.Helper()
	return w.readLog(id, client.LogOptions{Follow: true})
}

func (w *env) readLog(id muster.JobID, o client.LogOptions) string {
	w.tb.Helper()
	ctx, cancel := context.WithTimeout(w.tb.Context(), testTimeout)
	defer cancel()
	var out []byte
	for line, err := range w.client.Logs(ctx, muster.TaskID{Job: id}, o) {
		if err != nil {
			w.tb.Fatal(err)
		}
		out = append(out, line.Data...)
	}
	return string(out)
}

// foreignWorker is the worker of Muster's that a QUBIX worker is.
func (w *env) foreignWorker(name string) muster.Worker {
	w.tb.Helper()
	var found muster.Worker
	testkit.Await(w.tb, "worker "+name+" is known", func() bool {
		var err error
		found, err = w.client.Worker(w.tb.Context(), name)
		return err == nil
	})
	return found
}

// waitReady waits until a worker accepts tasks of a kind.
func (w *env) waitReady(name, kind string) {
	w.tb.Helper()
	testkit.Await(w.tb, "worker "+name+" takes tasks of kind "+kind, func() bool {
		found, err := w.client.Worker(w.tb.Context(), name)
		return err == nil && found.State == muster.WorkerActive && found.Constrained == "" && slices.Contains(found.Kinds, kind)
	})
}

func script(text string) muster.TaskSpec {
	return muster.TaskSpec{Kind: muster.KindScript, Script: &muster.Script{Text: text, Interpreter: []string{"python3"}}}
}

func mnist(input string) muster.TaskSpec {
	return muster.TaskSpec{Kind: "mnist_training", Input: json.RawMessage(input)}
}
