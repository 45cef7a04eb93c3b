package workerd_test

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/shirou/gopsutil/v4/disk"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/run/python"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/serverd"
	"github.com/muster-dev/muster/internal/workerd"
)

// waitLimit bounds every wait of these tests.
const waitLimit = time.Minute

// begin starts a server for the test and returns it with a client.
func begin(tb testing.TB) (*serverd.Server, *client.Client) {
	tb.Helper()
	return beginWith(tb, slog.New(slog.NewTextHandler(tb.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})))
}

// beginWith is begin for a server that writes to a log.
func beginWith(tb testing.TB, log *slog.Logger) (*serverd.Server, *client.Client) {
	tb.Helper()
	return beginIn(tb, tb.TempDir(), log)
}

// beginIn is beginWith for a server with a data directory.
func beginIn(tb testing.TB, data string, log *slog.Logger) (*serverd.Server, *client.Client) {
	tb.Helper()
	s, err := serverd.New(tb.Context(), serverd.Config{Listen: "127.0.0.1:0", Data: data, Version: "test"}, log)
	if err != nil {
		tb.Fatal(err)
	}
	background(tb, s.Run)
	c, err := client.New(s.URL(), s.AdminToken(), client.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	return s, c
}

// background runs something until the test ends, or until the returned func stops
// it.
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
		case <-time.After(waitLimit):
			tb.Error("it does not stop")
		}
	}
	tb.Cleanup(stop)
	return stop
}

func newWorker(tb testing.TB, s *serverd.Server, change func(*workerd.Config)) *workerd.Worker {
	tb.Helper()
	cfg := workerd.Config{Server: s.URL(), Token: s.JoinToken(), Name: "here", Data: tb.TempDir(), Version: "test", ShutdownGrace: time.Second}
	if change != nil {
		change(&cfg)
	}
	w, err := workerd.New(cfg, slog.New(slog.NewTextHandler(tb.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})))
	if err != nil {
		tb.Fatal(err)
	}
	return w
}

// submit reads a spec as JSON and waits for its job to end.
func submit(tb testing.TB, c *client.Client, text string) muster.Job {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), waitLimit)
	defer cancel()
	var spec muster.Spec
	if err := json.Unmarshal([]byte(text), &spec); err != nil {
		tb.Fatal(err)
	}
	j, err := c.Submit(ctx, &spec, client.SubmitOptions{})
	if err != nil {
		tb.Fatal(err)
	}
	// Not by events: a benchmark would measure them.
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for !j.State.Final() {
		<-poll.C
		if j, err = c.Job(ctx, j.ID); err != nil {
			tb.Fatal(err)
		}
	}
	return j
}

func TestJobsRun(t *testing.T) {
	s, c := begin(t)
	background(t, newWorker(t, s, nil).Run)
	for name, tc := range map[string]struct {
		spec string
		want muster.JobState
	}{
		"noop":    {`{"tasks":[{"kind":"noop","array":"0-999"}]}`, muster.JobSucceeded},
		"process": {`{"tasks":[{"kind":"process","run":["true"],"array":"0-19"}]}`, muster.JobSucceeded},
		"failure": {`{"tasks":[{"kind":"process","run":"exit 3"}]}`, muster.JobFailed},
		"timeout": {`{"tasks":[{"kind":"process","run":"sleep 1000","timeout":"500ms"}]}`, muster.JobTimedOut},
	} {
		if j := submit(t, c, tc.spec); j.State != tc.want {
			t.Errorf("%s: the job is %s: %+v", name, j.State, j.Counts)
			for task, err := range c.Tasks(t.Context(), j.ID, client.TaskQuery{}) {
				t.Logf("%s %s %s: %s (%v)", task.ID, task.State, task.Reason, task.Message, err)
			}
		}
	}
}

func TestOutputsAreUploaded(t *testing.T) {
	s, c := begin(t)
	background(t, newWorker(t, s, nil).Run)
	j := submit(t, c, `{"tasks":[{"kind":"script","script":{"text":"echo hello; echo '{\"x\":1}' > $MUSTER_OUT/result.json; echo data > model.bin"},"outputs":["model.bin"]}]}`)
	id := muster.TaskID{Job: j.ID}
	task, err := c.Task(t.Context(), id)
	if err != nil || j.State != muster.JobSucceeded {
		t.Fatalf("%s: %+v, %v", j.State, task, err)
	}
	if string(task.Result) != `{"x":1}` {
		t.Errorf("result %s", task.Result)
	}
	var model muster.Artifact
	for _, a := range task.Artifacts {
		if a.Name == "model.bin" {
			model = a
		}
	}
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = root.Close() }()
	if err := c.DownloadArtifact(t.Context(), id, model, client.Target{Root: root, Name: "model.bin"}, nil); err != nil {
		t.Fatal(err)
	}
	if b, err := root.ReadFile("model.bin"); err != nil || string(b) != "data\n" {
		t.Errorf("the artifact has %q, %v", b, err)
	}
	var out strings.Builder
	for line, err := range c.Logs(t.Context(), id, client.LogOptions{Follow: true}) {
		if err != nil {
			t.Fatal(err)
		}
		out.Write(line.Data)
	}
	if out.String() != "hello\n" {
		t.Errorf("log %q", out.String())
	}
}

func TestRestartedWorkerKeepsItsIdentity(t *testing.T) {
	s, c := begin(t)
	data := t.TempDir()
	for range 2 {
		stop := background(t, newWorker(t, s, func(cfg *workerd.Config) { cfg.Data = data }).Run)
		if j := submit(t, c, `{"tasks":[{"kind":"noop"}]}`); j.State != muster.JobSucceeded {
			t.Fatalf("the job is %s", j.State)
		}
		stop()
	}
	ws, err := c.Workers(t.Context())
	if err != nil || len(ws) != 1 {
		t.Errorf("the server knows %d workers, %v", len(ws), err)
	}
}

// TestWorkerHasTheIDThatItAskedFor checks that the id holds over restarts, and that the data directory is not taken for another id.
func TestWorkerHasTheIDThatItAskedFor(t *testing.T) {
	s, c := begin(t)
	data := t.TempDir()
	with := func(id muster.WorkerID) *workerd.Worker {
		return newWorker(t, s, func(cfg *workerd.Config) { cfg.Data, cfg.WorkerID = data, id })
	}
	for _, id := range []muster.WorkerID{"rack-1", "rack-1", ""} {
		stop := background(t, with(id).Run)
		submit(t, c, `{"tasks":[{"kind":"noop"}]}`)
		stop()
	}
	ws, err := c.Workers(t.Context())
	if err != nil || len(ws) != 1 || ws[0].ID != "rack-1" {
		t.Errorf("the workers are %+v, %v", ws, err)
	}
	if err := with("rack-2").Run(t.Context()); muster.CodeOf(err) != muster.Conflict || !strings.Contains(err.Error(), "of worker rack-1, and not of rack-2") {
		t.Errorf("with another id: %v", err)
	}
}

// TestHeartbeatsReportTheDisk checks that the server knows how full the disk under a worker's data dir is.
func TestHeartbeatsReportTheDisk(t *testing.T) {
	s, c := begin(t)
	data := t.TempDir()
	background(t, newWorker(t, s, func(cfg *workerd.Config) { cfg.Data = data }).Run)
	want, err := disk.UsageWithContext(t.Context(), data)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for {
		ws, err := c.Workers(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if len(ws) == 1 && ws[0].Load != nil {
			if d := ws[0].Load.Disk; d == nil || d.Total != muster.Size(want.Total) || d.Free <= 0 || d.Free > d.Total {
				t.Errorf("the disk is %+v, want %s in all", d, muster.Size(want.Total))
			}
			return
		}
		<-poll.C
	}
}

func TestConfigIsValidated(t *testing.T) {
	for want, cfg := range map[string]workerd.Config{
		"not a server's URL":    {Server: "localhost:8700", Data: "d"},
		"needs a data dir":      {Server: "http://localhost:8700"},
		"must not be negative":  {Server: "http://localhost:8700", Data: "d", Slots: -1},
		"invalid tag":           {Server: "http://localhost:8700", Data: "d", Tags: []string{"a", "b c"}},
		"is not a server's URL": {Server: "ftp://localhost", Data: "d"},
		"--worker-id is":        {Server: "http://localhost:8700", Data: "d", WorkerID: "a b"},
		"--heartbeat is 500ms":  {Server: "http://localhost:8700", Data: "d", Heartbeat: muster.Duration(500 * time.Millisecond)},
		"is longer than --max-": {Server: "http://localhost:8700", Data: "d", Allow: muster.Allow{TaskTimeout: 2, MaxTaskTimeout: 1}},
		`--address is "http:`:   {Server: "http://localhost:8700", Data: "d", Address: "http://10.0.0.7"},
	} {
		if _, err := workerd.New(cfg, slog.New(slog.DiscardHandler)); muster.CodeOf(err) != muster.Invalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: got %v", cfg, err)
		}
	}
}

func TestMissingTokenErrorSuggestsAFix(t *testing.T) {
	s, _ := begin(t)
	w := newWorker(t, s, func(cfg *workerd.Config) { cfg.Token = "" })
	if err := w.Run(t.Context()); muster.CodeOf(err) != muster.Unauthenticated || !strings.Contains(err.Error(), "--token") {
		t.Errorf("got %v", err)
	}
	w = newWorker(t, s, func(cfg *workerd.Config) { cfg.Token = "mst_join_wrong" })
	if err := w.Run(t.Context()); muster.CodeOf(err) != muster.Unauthenticated || !strings.Contains(err.Error(), "rejects the join token") {
		t.Errorf("got %v", err)
	}
}

// BenchmarkNoop is the whole way of a task that does nothing: submitted, on disk,
// assigned over a WebSocket, finished, on disk. It reports tasks per second.
func BenchmarkNoop(b *testing.B) {
	s, c := begin(b)
	background(b, newWorker(b, s, func(cfg *workerd.Config) { cfg.Slots = 64 }).Run)
	submit(b, c, `{"tasks":[{"kind":"noop","array":"0-99"}]}`)
	for b.Loop() {
		if j := submit(b, c, `{"tasks":[{"kind":"noop","array":"0-59999"}]}`); j.State != muster.JobSucceeded {
			b.Fatalf("the job is %s", j.State)
		}
	}
	b.ReportMetric(60_000*float64(b.N)/b.Elapsed().Seconds(), "tasks/s")
}

// Leftovers of a killed worker are removed at the next start: folders of tasks without a shim, and processes of its tools.
func TestOrphansAreRemoved(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux reports the owner of a process")
	}
	s, c := begin(t)
	data := t.TempDir()
	folder := filepath.Join(data, "tasks", "9.9-1", "work")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	tool := func(of string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), "/bin/sleep", "600")
		cmd.Env = []string{python.EnvTag(of)}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	own, other := tool(data), tool(t.TempDir())
	background(t, newWorker(t, s, func(cfg *workerd.Config) { cfg.Data = data }).Run)
	_ = own.Wait() // killed
	if j := submit(t, c, `{"tasks":[{"kind":"noop"}]}`); j.State != muster.JobSucceeded {
		t.Fatalf("the job is %s", j.State)
	}
	if _, err := os.Stat(folder); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder of a task from before the restart: %v", err)
	}
	if err := other.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("a tool of another worker: %v", err)
	}
	_ = other.Process.Kill()
	_ = other.Wait()
}

// A worker that is to leave does so also before it has joined.
func TestDetachWhileJoining(t *testing.T) {
	w, err := workerd.New(workerd.Config{Server: "http://127.0.0.1:1", Token: "mst_join_x", Data: t.TempDir()}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Alive(t.Context()); err != nil || w.Summary() != "connecting to http://127.0.0.1:1" {
		t.Errorf("before it runs: %v, %s", err, w.Summary())
	}
	done := make(chan error, 1)
	go func() { done <- w.Run(t.Context()) }()
	w.Detach()
	select {
	case err := <-done:
		if !errors.Is(err, run.ErrDetach) {
			t.Errorf("it ended with %v", err)
		}
	case <-time.After(waitLimit):
		t.Error("it does not leave")
	}
}
