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
	"github.com/muster-dev/muster/internal/mustertest/engines"
)

// quick are the waits of tests: short pauses, and long waits for what must come.
var quick = waits{
	ask: 50 * time.Millisecond, answer: 30 * time.Second, work: 2 * time.Minute,
	stall: time.Minute, unpack: time.Minute, slow: time.Minute, pauses: []time.Duration{10 * time.Millisecond, 10 * time.Millisecond},
	absent: time.Minute, fresh: 0, late: time.Minute,
}

// world is a worker's containers at a real engine.
type world struct {
	*Containers

	t     *testing.T
	host  string
	api   *client.Client
	lines lines // said and shown to tasks, and logged
}

// lines collects texts.
type lines struct {
	mu  sync.Mutex
	all []string
}

func (l *lines) add(s string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, s)
}

func (l *lines) Write(b []byte) (int, error) {
	l.add(string(b))
	return len(b), nil
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.all, "\n")
}

var numbers atomic.Int64 // of workers

// newWorld returns the containers of a worker at the engine of all tests, asked once.
func newWorld(t *testing.T, change func(*Config)) *world {
	t.Helper()
	return worldAt(t, engines.Shared(t), change)
}

func worldAt(t *testing.T, host string, change func(*Config)) *world {
	t.Helper()
	engine, err := docker.Open(host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = engine.Close() })
	w := &world{t: t, host: host, api: engines.API(t, host)}
	cfg := Config{
		Engine: engine, Worker: fmt.Sprintf("a%d%s%d", os.Getpid(), strings.ToLower(t.Name()), numbers.Add(1)), Dir: t.TempDir(),
		Credentials: logins(t, nil), Log: slog.New(slog.NewTextHandler(&w.lines, nil)),
	}
	if change != nil {
		change(&cfg)
	}
	if w.Containers, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	w.waits = quick
	if err := w.Ask(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Sweep(context.WithoutCancel(t.Context()), nil); err != nil {
			t.Error(err)
		}
		for name := range w.made {
			_ = w.cfg.Engine.Remove(context.WithoutCancel(t.Context()), name)
		}
	})
	return w
}

// logins writes a config.json with a user and password, "user:password", by registry.
func logins(t *testing.T, by map[string]string) string {
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

// box is a task that runs argv in an image.
func box(image string, argv ...string) *run.Box {
	return &run.Box{
		Task: &run.Task{
			Attempt: muster.AttemptID{Task: muster.TaskID{Job: 17, Num: int(numbers.Add(1))}, N: 2},
			Spec:    &muster.TaskSpec{Kind: muster.KindContainer, Image: image, Isolation: muster.IsolationContainer},
		},
		Argv: argv,
	}
}

// make makes a container and removes it after the test.
func (w *world) box(b *run.Box) (*run.Container, error) {
	w.t.Helper()
	c, err := w.Make(w.t.Context(), b, w.lines.add, w.lines.add)
	if err == nil {
		w.t.Cleanup(func() {
			if err := w.Remove(context.WithoutCancel(w.t.Context()), c); err != nil {
				w.t.Error(err)
			}
		})
	}
	return c, err
}

// must is what must succeed.
func (w *world) must(b *run.Box) *run.Container {
	w.t.Helper()
	c, err := w.box(b)
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

// runs starts a container, and returns what it printed and how it exited.
func (w *world) runs(b *run.Box) (string, int) {
	w.t.Helper()
	ctx, c := w.t.Context(), w.must(b)
	wait := w.api.ContainerWait(ctx, c.ID, client.ContainerWaitOptions{Condition: container.WaitConditionNextExit})
	if _, err := w.api.ContainerStart(ctx, c.ID, client.ContainerStartOptions{}); err != nil {
		w.t.Fatal(err)
	}
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
func (w *world) shell() string {
	w.t.Helper()
	return engines.Busybox(w.t, w.host)
}

// wants holds that err is a TaskError with this reason, whose message has these parts.
func wants(t *testing.T, err error, reason muster.Reason, parts ...string) {
	t.Helper()
	f, ok := errors.AsType[*run.TaskError](err)
	if !ok || f.Reason != reason {
		t.Fatalf("%v: want a TaskError with the reason %s", err, reason)
	}
	for _, part := range parts {
		if !strings.Contains(f.Message, part) {
			t.Errorf("the message %q says nothing of %q", f.Message, part)
		}
	}
}
