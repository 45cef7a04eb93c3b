package container

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/docker"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/mustertest/containertest"
)

// testTimeouts are the timeouts of tests: short pauses, and long waits for expected events.
var testTimeouts = timeouts{
	poll: 50 * time.Millisecond, request: 30 * time.Second, operation: 2 * time.Minute,
	stall: time.Minute, unpack: time.Minute, slowWindow: time.Minute, retryDelays: []time.Duration{10 * time.Millisecond, 10 * time.Millisecond},
	absentTTL: time.Minute, minUnused: 0, lateCreate: time.Minute,
}

// testEnv is a worker's containers with a real engine.
type testEnv struct {
	*Containers

	t     *testing.T
	host  string
	api   *client.Client
	lines logLines // steps, lines of task logs, and the worker's log
}

// logLines collects texts.
type logLines struct {
	mu  sync.Mutex
	all []string
}

func (l *logLines) add(s string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, s)
}

func (l *logLines) Write(b []byte) (int, error) {
	l.add(string(b))
	return len(b), nil
}

func (l *logLines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.all, "\n")
}

var testSeq atomic.Int64 // of workers

// newTestEnv returns the containers of a worker at the engine of all tests, asked once.
func newTestEnv(t *testing.T, change func(*Config)) *testEnv {
	t.Helper()
	return newTestEnvAt(t, containertest.SharedEngine(t), change)
}

func newTestEnvAt(t *testing.T, host string, change func(*Config)) *testEnv {
	t.Helper()
	engine, err := docker.Open(host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = engine.Close() })
	w := &testEnv{t: t, host: host, api: containertest.API(t, host)}
	cfg := Config{
		Engine: engine, Worker: fmt.Sprintf("a%d%s%d", os.Getpid(), strings.ToLower(t.Name()), testSeq.Add(1)), Dir: t.TempDir(),
		Credentials: writeAuthFile(t, nil), Log: slog.New(slog.NewTextHandler(&w.lines, nil)),
	}
	if change != nil {
		change(&cfg)
	}
	if w.Containers, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	w.timeouts = testTimeouts
	if err := w.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Sweep(context.WithoutCancel(t.Context()), nil); err != nil {
			t.Error(err)
		}
		for name := range w.created {
			_ = w.cfg.Engine.Remove(context.WithoutCancel(t.Context()), name)
		}
	})
	return w
}

// writeAuthFile writes a config.json with a user and password, "user:password", by registry.
func writeAuthFile(t *testing.T, by map[string]string) string {
	t.Helper()
	var auths []string
	for host, pair := range by {
		auths = append(auths, fmt.Sprintf(`%q: {"auth": %q}`, host, base64.StdEncoding.EncodeToString([]byte(pair))))
	}
	path := filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(path, []byte(`{"auths": {`+strings.Join(auths, ", ")+`}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// newSpec is a task that runs argv in an image.
func newSpec(image string, argv ...string) *run.ContainerSpec {
	return &run.ContainerSpec{
		Task: &run.Task{
			Attempt: muster.AttemptID{Task: muster.TaskID{Job: 17, Num: int(testSeq.Add(1))}, N: 2},
			Spec:    &muster.TaskSpec{Kind: muster.KindContainer, Image: image, Isolation: muster.IsolationContainer},
		},
		Argv: argv,
	}
}

// make makes a container and removes it after the test.
func (w *testEnv) create(b *run.ContainerSpec) (*run.Container, error) {
	w.t.Helper()
	c, err := w.Create(w.t.Context(), b, w.lines.add, w.lines.add)
	if err == nil {
		w.t.Cleanup(func() {
			if err := w.Remove(context.WithoutCancel(w.t.Context()), c); err != nil {
				w.t.Error(err)
			}
		})
	}
	return c, err
}

// mustCreate is what must succeed.
func (w *testEnv) mustCreate(b *run.ContainerSpec) *run.Container {
	w.t.Helper()
	c, err := w.create(b)
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

// runContainer starts a container, and returns what it printed and how it exited.
func (w *testEnv) runContainer(b *run.ContainerSpec) (string, int) {
	w.t.Helper()
	return w.runCreated(w.mustCreate(b))
}

// runCreated is runContainer for one that was created.
func (w *testEnv) runCreated(c *run.Container) (string, int) {
	w.t.Helper()
	ctx := w.t.Context()
	wait := w.api.ContainerWait(ctx, c.ID, client.ContainerWaitOptions{Condition: container.WaitConditionNextExit})
	if _, err := w.api.ContainerStart(ctx, c.ID, client.ContainerStartOptions{}); err != nil {
		w.t.Fatal(err)
	}
	w.Started(c)
	var code int
	select {
	case end := <-wait.Result:
		code = int(end.StatusCode)
	case err := <-wait.Error:
		w.t.Fatal(err)
	}
	logs, err := w.api.ContainerLogs(ctx, c.ID, client.ContainerLogsOptions{ShowStdout: true, ShowStderr: true})
	if err != nil {
		w.t.Fatal(err)
	}
	defer logs.Close()
	var out strings.Builder
	if _, err := stdcopy.StdCopy(&out, &out, logs); err != nil {
		w.t.Fatal(err)
	}
	return out.String(), code
}

// shell returns an image with a shell in the world's engine.
func (w *testEnv) shell() string {
	w.t.Helper()
	return containertest.LoadBusybox(w.t, w.host)
}

// wantTaskError checks that err is a TaskError with this reason, whose message has these parts.
func wantTaskError(t *testing.T, err error, reason muster.Reason, parts ...string) {
	t.Helper()
	f, ok := errors.AsType[*run.TaskError](err)
	if !ok || f.Reason != reason {
		t.Fatalf("%v: want a TaskError with the reason %s", err, reason)
	}
	for _, part := range parts {
		if !strings.Contains(f.Message, part) {
			t.Errorf("message %q does not contain %q", f.Message, part)
		}
	}
}
