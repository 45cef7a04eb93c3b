package dialecttest

import (
	"context"
	"log/slog"
	"maps"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/dialect"
	"github.com/muster-dev/muster/internal/serve"
)

const adminToken = "dialecttest-admin-token-0123456789"

// world is a real server with the gateway of one system.
type world struct {
	t      *testing.T
	suite  *Suite
	dir    string
	config dialect.Config
	listen string
	url    string // of the gateway
	client *client.Client
	stop   func()
}

func newWorld(t *testing.T, s *Suite, change func(*dialect.Config)) *world {
	t.Helper()
	w := &world{
		t: t, suite: s, dir: t.TempDir(), listen: "127.0.0.1:0",
		config: dialect.Config{Name: s.System.Name, Address: "127.0.0.1:0", Options: maps.Clone(s.Options)},
	}
	if w.config.Options == nil {
		w.config.Options = map[string]string{}
	}
	if change != nil {
		change(&w.config)
	}
	w.start()
	t.Cleanup(func() { w.stop() })
	return w
}

// start starts the server on the world's folder; again it has the ports that it had.
func (w *world) start() {
	w.t.Helper()
	log := slog.New(slog.NewTextHandler(w.t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	server, err := serve.New(w.t.Context(), serve.Config{
		Listen: w.listen, Data: w.dir, AdminToken: adminToken, JoinToken: "dialecttest-join-token-0123456789", Heartbeat: muster.Duration(200 * time.Millisecond), Version: "test",
		Dialects: []dialect.Config{w.config}, Systems: []dialect.System{w.suite.System},
	}, log)
	if err != nil {
		w.t.Fatal(err)
	}
	w.url = strings.TrimSuffix(server.Gateways()[0].URL, "/")
	w.listen = w.port(server.URL())
	if strings.HasSuffix(w.config.Address, ":0") {
		w.config.Address = w.port(w.url)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	w.stop = func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Errorf("the server ended with %v", err)
		}
		w.stop = func() {}
	}
	if w.client, err = client.New(server.URL(), adminToken, client.Options{}); err != nil {
		w.t.Fatal(err)
	}
}

// port returns host:port of a URL.
func (w *world) port(of string) string {
	u, err := url.Parse(of)
	if err != nil {
		w.t.Fatal(err)
	}
	return u.Host
}

func (w *world) worker(id, key string) Worker {
	w.t.Helper()
	worker := w.suite.Start(w.t, w.url, id, key)
	w.t.Cleanup(worker.Vanish)
	return worker
}

func (w *world) take(worker Worker) Work {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	work, err := worker.Take(ctx)
	if err != nil {
		w.t.Fatalf("the worker got no task: %v", err)
	}
	return work
}

// works runs one more task, to see that the gateway and the worker are well.
func (w *world) works(worker Worker) {
	w.t.Helper()
	job := w.submit(nil)
	if err := w.take(worker).Succeed(w.t.Context(), "well"); err != nil {
		w.t.Fatalf("the report of one more task: %v", err)
	}
	w.is(job, muster.Succeeded)
}

func (w *world) submit(change func(*muster.TaskSpec)) muster.Job {
	w.t.Helper()
	task := w.suite.Task
	if change != nil {
		change(&task)
	}
	return w.send(&muster.Spec{Tasks: []muster.TaskSpec{task}})
}

func (w *world) submitTo(project string) muster.Job {
	w.t.Helper()
	return w.send(&muster.Spec{Project: project, Tasks: []muster.TaskSpec{w.suite.Task}})
}

func (w *world) send(spec *muster.Spec) muster.Job {
	w.t.Helper()
	job, err := w.client.Submit(w.t.Context(), spec, client.SubmitOptions{})
	if err != nil {
		w.t.Fatalf("submit: %v", err)
	}
	return job
}

func (w *world) task(job muster.Job) muster.Task {
	w.t.Helper()
	task, err := w.client.Task(w.t.Context(), muster.TaskID{Job: job.ID})
	if err != nil {
		w.t.Fatalf("task of job %d: %v", job.ID, err)
	}
	return task
}

// log returns the whole log of the job's task.
func (w *world) log(job muster.Job) string {
	w.t.Helper()
	var text strings.Builder
	for line, err := range w.client.Logs(w.t.Context(), muster.TaskID{Job: job.ID}, client.LogOptions{}) {
		if err != nil {
			w.t.Fatalf("log of job %d: %v", job.ID, err)
		}
		text.Write(line.Data)
	}
	return text.String()
}

// is waits until the job's task is in the state.
func (w *world) is(job muster.Job, state muster.TaskState) muster.Task {
	w.t.Helper()
	var last muster.Task
	w.until("task "+job.ID.String()+".0 is "+state.String(), func() bool { last = w.task(job); return last.State == state })
	return last
}

// until waits until f returns true.
func (w *world) until(what string, f func() bool) {
	w.t.Helper()
	for end := time.Now().Add(patience); !f(); {
		if time.Now().After(end) {
			w.t.Fatalf("it did not come to pass: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
