package dialecttest

import (
	"context"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/dialect"
	"github.com/muster-dev/muster/internal/serverd"
	"github.com/muster-dev/muster/internal/testkit"
)

// env is a real server with the gateway of one system.
type env struct {
	t      *testing.T
	suite  *Suite
	dir    string
	config dialect.Config
	listen string
	url    string // of the gateway
	client *client.Client
	stop   func()
}

func newEnv(t *testing.T, s *Suite, configure func(*dialect.Config)) *env {
	t.Helper()
	w := &env{t: t, suite: s, dir: t.TempDir(), listen: "127.0.0.1:0", config: dialect.Config{Name: s.System.Name, Address: "127.0.0.1:0", Options: map[string]string{}}}
	maps.Copy(w.config.Options, s.Options)
	if configure != nil {
		configure(&w.config)
	}
	w.start()
	return w
}

// start starts the server in the same directory and on the same ports.
func (w *env) start() {
	w.t.Helper()
	server := Start(w.t, serverd.Config{
		Listen: w.listen, Data: w.dir, Heartbeat: muster.Duration(200 * time.Millisecond), Dialects: []dialect.Config{w.config}, Systems: []dialect.System{w.suite.System},
	})
	w.url = strings.TrimSuffix(server.Gateways()[0].URL, "/")
	w.listen = strings.TrimPrefix(server.URL(), "http://")
	if strings.HasSuffix(w.config.Address, ":0") {
		w.config.Address = strings.TrimPrefix(w.url, "http://")
	}
	w.client, w.stop = server.Client, server.Stop
}

func (w *env) worker(id, key string) Worker {
	w.t.Helper()
	worker := w.suite.Start(w.t, w.url, id, key)
	w.t.Cleanup(worker.Crash)
	return worker
}

func (w *env) nextTask(worker Worker) Assignment {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), testTimeout)
	defer cancel()
	work, err := worker.NextTask(ctx)
	if err != nil {
		w.t.Fatalf("the worker got no task: %v", err)
	}
	return work
}

// checkWorks runs one more task to check that the gateway and the worker still work.
func (w *env) checkWorks(worker Worker) {
	w.t.Helper()
	job := w.submit(nil)
	w.succeed(w.nextTask(worker), "well")
	w.waitState(job, muster.Succeeded)
}

// succeed sends the final report of a task.
func (w *env) succeed(work Assignment, word string) {
	w.t.Helper()
	if err := work.Succeed(w.t.Context(), word); err != nil {
		w.t.Fatalf("the report: %v", err)
	}
}

func (w *env) submit(change func(*muster.TaskSpec)) muster.Job {
	w.t.Helper()
	task := w.suite.Task
	if change != nil {
		change(&task)
	}
	return w.submitSpec(&muster.Spec{Tasks: []muster.TaskSpec{task}})
}

func (w *env) submitSpec(spec *muster.Spec) muster.Job {
	w.t.Helper()
	job, err := w.client.Submit(w.t.Context(), spec, client.SubmitOptions{})
	if err != nil {
		w.t.Fatalf("submit: %v", err)
	}
	return job
}

func (w *env) task(job muster.Job) muster.Task {
	w.t.Helper()
	task, err := w.client.Task(w.t.Context(), muster.TaskID{Job: job.ID})
	if err != nil {
		w.t.Fatalf("task of job %d: %v", job.ID, err)
	}
	return task
}

func (w *env) log(job muster.Job) string {
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

func (w *env) waitState(job muster.Job, state muster.TaskState) muster.Task {
	w.t.Helper()
	var last muster.Task
	testkit.Await(w.t, "task "+job.ID.String()+".0 is "+state.String(), func() bool { last = w.task(job); return last.State == state })
	return last
}
