// Package dialecttest tests gateways. Conform runs tasks on scripted workers of a system with a real server; the name of each case is
// the property that it tests. Capabilities lists what only some systems can do.
package dialecttest

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/dialect"
	"github.com/muster-dev/muster/internal/testkit"
)

// Suite is a system with its scripted workers.
type Suite struct {
	System dialect.System
	// Options of the gateway. With them a worker must be lost after about a second without contact, also while it runs a task.
	Options map[string]string
	// Task is one that the workers run.
	Task muster.TaskSpec
	// Start starts a worker with this id at the gateway's URL; key is a Muster key with which it joins, "" for none.
	Start func(t *testing.T, url, id, key string) Worker
	// Paths to which workers post JSON. An id in them may be empty.
	Paths        []string
	Capabilities Capabilities
}

// Capabilities lists what a system's protocol can do.
type Capabilities struct {
	Progress    bool // of a running task
	Log         bool // lines while it runs
	Message     bool // why a task failed
	Keys        bool // workers can send a key, also in the URL
	DetectsLoss bool // with Suite.Options a worker without contact is lost within seconds
}

// Worker is a scripted worker. It sends heartbeats as the system's own worker does.
type Worker interface {
	// NextTask waits for a task, and does what the system's worker does first. It returns the error of ctx, or why the gateway refuses
	// the worker.
	NextTask(ctx context.Context) (Assignment, error)
	// Report sends the final report of a success for a task that the gateway may not know. It returns an answer that is an error.
	Report(ctx context.Context, task string) error
	// Crash ends the worker without a message. It may be called twice.
	Crash()
}

// Assignment is a task of a worker. Its methods return an answer of the gateway that is an error.
type Assignment interface {
	ID() string // for the gateway
	Progress(ctx context.Context, fraction float64, line string) error
	Succeed(ctx context.Context, word string) error // word must be found in the result
	Fail(ctx context.Context, message string) error
}

const (
	testTimeout = 60 * time.Second       // for something to happen
	idleWait    = 700 * time.Millisecond // to check that nothing happens
)

// Conform runs the suite.
func Conform(t *testing.T, s Suite) {
	for _, c := range []struct {
		name    string
		enabled bool
		run     func(*testing.T, *Suite)
	}{
		{"a task runs on a foreign worker, and what it reports is the task's", true, testSuccess},
		{"a failure on a foreign worker is one of the task", true, testFailure},
		{"a second report has no effect", true, testDuplicateReport},
		{"a report of a cancelled task has no effect", true, testCancel},
		{"a task of a lost worker runs again, and the late report has no effect", s.Capabilities.DetectsLoss, testWorkerLoss},
		{"a task survives a restart of the server", true, testServerRestart},
		{"a drained worker finishes its task and is given no other", true, testDrain},
		{"two workers with one id run a task once", true, testSharedID},
		{"malformed requests are refused, and nothing else happens", true, testMalformed},
		{"reports of unknown tasks have no effect", true, testUnknownTask},
		{"with key=required only workers with a join key are let in", s.Capabilities.Keys, testKeys},
		{"a task that the workers lack something for stays in the queue", true, testUnplaced},
	} {
		if c.enabled {
			t.Run(c.name, func(t *testing.T) { c.run(t, &s) })
		}
	}
}

// startTask starts a server with one worker, which gets the task of a new job.
func startTask(t *testing.T, s *Suite) (*env, Worker, muster.Job, Assignment) {
	t.Helper()
	w := newEnv(t, s, nil)
	worker := w.worker("one", "")
	job := w.submit(nil)
	return w, worker, job, w.nextTask(worker)
}

func testSuccess(t *testing.T, s *Suite) {
	w, _, job, work := startTask(t, s)
	if s.Capabilities.Progress || s.Capabilities.Log {
		if err := work.Progress(t.Context(), 0.5, "half of it"); err != nil {
			t.Fatalf("progress: %v", err)
		}
	}
	w.waitState(job, muster.Running)
	if s.Capabilities.Progress {
		testkit.Await(w.t, "progress is shown", func() bool { p := w.task(job).Progress; return p != nil && *p > 0.49 && *p < 0.51 })
	}
	w.succeed(work, "forty-two")
	got := w.waitState(job, muster.Succeeded)
	if !strings.Contains(string(got.Result), "forty-two") || got.Attempt != 1 {
		t.Errorf("attempt %d has the result %s", got.Attempt, got.Result)
	}
	if s.Capabilities.Log {
		testkit.Await(w.t, "the log is on the server", func() bool { return strings.Contains(w.log(job), "half of it") })
	}
	list, err := w.client.Workers(t.Context())
	if err != nil || len(list) != 1 || list[0].Labels["dialect"] != s.System.Name || list[0].State != muster.WorkerActive {
		t.Errorf("the worker is shown as %+v, %v", list, err)
	}
}

func testFailure(t *testing.T, s *Suite) {
	w, worker, job, work := startTask(t, s)
	if err := work.Fail(t.Context(), "the disk is gone"); err != nil {
		t.Fatalf("the report: %v", err)
	}
	got := w.waitState(job, muster.Failed)
	if s.Capabilities.Message && !strings.Contains(got.Message, "the disk is gone") {
		t.Errorf("it failed for %s: %q", got.Reason, got.Message)
	}
	w.checkWorks(worker)
}

func testDuplicateReport(t *testing.T, s *Suite) {
	w, worker, job, work := startTask(t, s)
	w.succeed(work, "first")
	w.waitState(job, muster.Succeeded)
	_ = work.Succeed(t.Context(), "second") // how it is answered is the system's own: see its tests
	_ = work.Fail(t.Context(), "third")
	_ = work.Progress(t.Context(), 0.1, "too late")
	w.checkWorks(worker)
	if got := w.task(job); got.State != muster.Succeeded || !strings.Contains(string(got.Result), "first") || got.Attempt != 1 {
		t.Errorf("the task is %s with %s after %d attempts", got.State, got.Result, got.Attempt)
	}
}

func testCancel(t *testing.T, s *Suite) {
	w, worker, job, work := startTask(t, s)
	w.waitState(job, muster.Running)
	if _, err := w.client.Cancel(t.Context(), job.ID, nil); err != nil {
		t.Fatal(err)
	}
	w.waitState(job, muster.Cancelled)
	_ = work.Succeed(t.Context(), "all the same")
	w.checkWorks(worker) // its report has set it free
	if got := w.task(job); got.State != muster.Cancelled || len(got.Result) > 0 {
		t.Errorf("the task is %s with %s", got.State, got.Result)
	}
}

func testWorkerLoss(t *testing.T, s *Suite) {
	w := newEnv(t, s, nil)
	first := w.worker("one", "")
	job := w.submit(func(task *muster.TaskSpec) { task.Disconnect.Grace = muster.Duration(2 * time.Second) })
	work := w.nextTask(first)
	first.Crash()
	second := w.worker("two", "")
	again := w.nextTask(second)
	_ = work.Succeed(t.Context(), "late")
	if got := w.task(job); got.State.Final() {
		t.Errorf("the late report made the task %s", got.State)
	}
	w.succeed(again, "right")
	if got := w.waitState(job, muster.Succeeded); !strings.Contains(string(got.Result), "right") || got.Attempt != 2 {
		t.Errorf("attempt %d has the result %s", got.Attempt, got.Result)
	}
}

func testServerRestart(t *testing.T, s *Suite) {
	w, worker, job, work := startTask(t, s)
	w.waitState(job, muster.Running)
	w.stop()
	w.start()
	testkit.Await(w.t, "the report is accepted", func() bool { return work.Succeed(t.Context(), "after") == nil || w.task(job).State.Final() })
	if got := w.waitState(job, muster.Succeeded); got.Attempt != 1 || !strings.Contains(string(got.Result), "after") {
		t.Errorf("attempt %d has the result %s", got.Attempt, got.Result)
	}
	w.checkWorks(worker)
}

func testDrain(t *testing.T, s *Suite) {
	w, worker, job, work := startTask(t, s)
	list, err := w.client.Workers(t.Context())
	if err != nil || len(list) != 1 {
		t.Fatalf("%d workers, %v", len(list), err)
	}
	if _, err := w.client.DrainWorker(t.Context(), string(list[0].ID), nil); err != nil {
		t.Fatal(err)
	}
	next := w.submit(nil)
	w.succeed(work, "done")
	w.waitState(job, muster.Succeeded)
	ctx, cancel := context.WithTimeout(t.Context(), idleWait)
	defer cancel()
	if work, err := worker.NextTask(ctx); err == nil {
		t.Errorf("a drained worker got %s", work.ID())
	}
	if got := w.task(next).State; got != muster.Queued {
		t.Errorf("the next task is %s", got)
	}
}

func testSharedID(t *testing.T, s *Suite) {
	w := newEnv(t, s, nil)
	one, other := w.worker("same", ""), w.worker("same", "")
	job := w.submit(nil)
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	type taken struct {
		work Assignment
		err  error
	}
	tries := make(chan taken, 2)
	for _, worker := range []Worker{one, other} {
		go func() {
			work, err := worker.NextTask(ctx)
			tries <- taken{work, err}
		}()
	}
	left := 2
	for ; left > 0 && !w.task(job).State.Final(); left-- {
		if got := <-tries; got.err == nil {
			_ = got.work.Succeed(t.Context(), "once")
			testkit.Await(w.t, "the task has ended", func() bool { return w.task(job).State.Final() })
		}
	}
	cancel()
	for ; left > 0; left-- {
		<-tries
	}
	w.waitState(job, muster.Succeeded)
	attempts, err := w.client.Attempts(t.Context(), muster.TaskID{Job: job.ID})
	if err != nil {
		t.Fatal(err)
	}
	// An assignment sent while a registration replaces the worker's session is lost, and its attempt never starts.
	started := slices.DeleteFunc(attempts, func(a muster.Attempt) bool { return a.StartedAt == 0 })
	if len(started) != 1 {
		t.Errorf("%d attempts were started, not one: %+v", len(started), started)
	}
}

func testMalformed(t *testing.T, s *Suite) {
	w := newEnv(t, s, nil)
	worker := w.worker("one", "")
	w.checkWorks(worker)
	bodies := []string{"", "{", "null", "[]", `"x"`, "1e999", `{"id":{}}`, `{"progress":"many"}`, strings.Repeat("[", 100_000), "\x00\xff", `{"a":"` + strings.Repeat("x", 1<<20)}
	for _, path := range s.Paths {
		for _, body := range bodies {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url+path, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", "application/json")
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				continue // it may close a connection
			}
			_ = resp.Body.Close()
			if resp.StatusCode >= http.StatusInternalServerError {
				t.Errorf("%s answers %s to %.40q", path, resp.Status, body)
			}
		}
	}
	w.checkWorks(worker)
}

func testUnknownTask(t *testing.T, s *Suite) {
	w := newEnv(t, s, nil)
	worker := w.worker("one", "")
	w.checkWorks(worker)
	for _, id := range []string{"00000000-0000-4000-8000-000000000000", "1", "../1", "ü", strings.Repeat("x", 5000)} {
		_ = worker.Report(t.Context(), id) // how it is answered is the system's own
	}
	w.checkWorks(worker)
}

func testKeys(t *testing.T, s *Suite) {
	w := newEnv(t, s, func(c *dialect.Config) { c.KeyRequired = true })
	job := w.submit(nil)
	refused, joins := map[string]string{"no key": "", "a wrong key": "mst_join_wrongwrongwrongwrong"}, map[string]string{}
	for _, c := range Callers(t, "http://"+w.listen, AdminToken, muster.DefaultProject) {
		name := fmt.Sprintf("a key %+v", c.Principal)
		if auth.Can(c.Principal, auth.JoinWorkers, auth.Object{Project: auth.AllProjects}) == nil {
			joins[name] = c.Secret
		} else {
			refused[name] = c.Secret
		}
	}
	for name, key := range refused {
		ctx, cancel := context.WithTimeout(t.Context(), idleWait)
		worker := w.worker("bad", key)
		if _, err := worker.NextTask(ctx); err == nil {
			t.Errorf("a worker with %s got a task", name)
		}
		cancel()
		worker.Crash()
	}
	if list, err := w.client.Workers(t.Context()); err != nil || len(list) > 0 {
		t.Errorf("workers are there: %+v, %v", list, err)
	}
	n := 0
	for name, key := range joins {
		worker := w.worker(fmt.Sprintf("good%d", n), key) // the id of a worker belongs to its key
		if n++; n == 1 {
			w.succeed(w.nextTask(worker), "let in")
			w.waitState(job, muster.Succeeded)
		} else { // there is no other task
			ctx, cancel := context.WithTimeout(t.Context(), idleWait)
			_, _ = worker.NextTask(ctx)
			cancel()
		}
		testkit.Await(t, "a worker with "+name+" is there", func() bool {
			list, err := w.client.Workers(t.Context())
			return err == nil && len(list) == n
		})
	}
	if len(joins) != 3 || len(refused) != 2+7 {
		t.Errorf("%d keys may join, %d may not", len(joins), len(refused))
	}
}

func testUnplaced(t *testing.T, s *Suite) {
	w := newEnv(t, s, nil)
	worker := w.worker("one", "")
	w.checkWorks(worker)
	huge := w.submit(func(task *muster.TaskSpec) { task.Resources.CPUs = 9000 })
	foreign := w.submitSpec(&muster.Spec{Project: "another-project", Tasks: []muster.TaskSpec{s.Task}})
	w.checkWorks(worker)
	for _, job := range []muster.Job{huge, foreign} {
		if got := w.task(job).State; got != muster.Queued {
			t.Errorf("job %d is %s", job.ID, got)
		}
	}
}
