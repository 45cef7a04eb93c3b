package mlocbridge

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/dialect/mloc/mloctest"
	"github.com/muster-dev/muster/internal/testkit"
)

// TestRedisIsFlushed holds that a worker registers again after the host's farewell, which is FLUSHDB, and gets tasks.
func TestRedisIsFlushed(t *testing.T) {
	r := mloctest.StartRedis(t)
	h, f := startHost(t, r), startFleet(t, "m1")
	startBridge(t, f.config(t, r, t.TempDir()))
	h.waitEnded(h.dispatch("w1", newTask(), h.document("echo", nil)))
	for range 3 {
		h.rdb.FlushDB(t.Context())
		if got := h.waitEnded(h.dispatch("w1", newTask(), h.document("echo", nil))); got != "DONE" {
			t.Errorf("it is %s", got)
		}
	}
}

// TestRedisIsLost holds that a task which ends while Redis is away is reported once, when Redis is back with nothing of
// what it knew.
func TestRedisIsLost(t *testing.T) {
	r := mloctest.StartRedis(t)
	h, f := startHost(t, r), startFleet(t, "m1")
	startBridge(t, f.config(t, r, t.TempDir()))
	testkit.Await(t, "the worker is registered", func() bool { return h.rdb.HGet(t.Context(), "worker:w1", "status").Val() == "IDLE" })
	if _, err := f.client.PauseWorker(t.Context(), "m1", nil); err != nil {
		t.Fatal(err)
	}
	one := h.dispatch("w1", newTask(), h.document("echo", nil))
	testkit.Await(t, "the job is there", func() bool { return len(f.jobs(t)) == 1 })
	r.Kill()
	if _, err := f.client.ResumeWorker(t.Context(), "m1"); err != nil {
		t.Fatal(err)
	}
	testkit.Await(t, "the job has ended", func() bool { return f.jobs(t)[0] == "succeeded" })
	r.Start()
	if got := h.waitEnded(one); got != "DONE" {
		t.Errorf("it is %s: %s", got, h.snapshot(one).err)
	}
	h.waitEnded(h.dispatch("w1", newTask(), h.document("echo", nil)))
	if n := h.snapshot(one).finals; n != 1 {
		t.Errorf("there were %d final reports", n)
	}
}

// jobs are the states of all jobs.
func (f *musterEnv) jobs(t *testing.T) []string {
	t.Helper()
	var list []string
	for j, err := range f.client.Jobs(t.Context(), client.JobQuery{}) {
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, string(j.State))
	}
	return list
}

// TestTheHostMissesAReport holds that a final event which the host did not hear is published again, as the host itself
// says that it waits.
func TestTheHostMissesAReport(t *testing.T) {
	r := mloctest.StartRedis(t)
	h, f := startHost(t, r), startFleet(t, "m1")
	cfg := f.config(t, r, t.TempDir())
	cfg.BaseURL, cfg.ConfirmTimeout = h.http.URL, 100*time.Millisecond
	startBridge(t, cfg)
	one := h.dispatch("w1", newTask(), h.document("echo", nil))
	h.mu.Lock()
	h.dropMessages = true
	h.mu.Unlock()
	testkit.Await(t, "the result is there", func() bool { return h.result(one.id) != nil })
	h.mu.Lock()
	h.dropMessages = false
	h.mu.Unlock()
	if got := h.waitEnded(one); got != "DONE" {
		t.Errorf("it is %s", got)
	}
}

// TestATaskThatWasTakenBack holds that a task which the host gave to another worker meanwhile gets no result and no
// report of this one.
func TestATaskThatWasTakenBack(t *testing.T) {
	r := mloctest.StartRedis(t)
	h, f := startHost(t, r), startFleet(t, "m1")
	startBridge(t, f.config(t, r, t.TempDir()))
	testkit.Await(t, "the worker is registered", func() bool { return h.rdb.HGet(t.Context(), "worker:w1", "status").Val() == "IDLE" })
	if _, err := f.client.PauseWorker(t.Context(), "m1", nil); err != nil {
		t.Fatal(err)
	}
	one := h.dispatch("w1", newTask(), h.document("echo", nil))
	testkit.Await(t, "the job is there", func() bool { return len(f.jobs(t)) == 1 })
	h.mu.Lock()
	one.worker = "another"
	h.mu.Unlock()
	if _, err := f.client.ResumeWorker(t.Context(), "m1"); err != nil {
		t.Fatal(err)
	}
	h.waitEnded(h.dispatch("w1", newTask(), h.document("echo", nil)))
	if h.snapshot(one).finals != 0 || h.result(one.id) != nil {
		t.Errorf("there were %d reports, and the result %v", h.snapshot(one).finals, h.result(one.id))
	}
}

// bridgeProcess runs this test binary as a bridge, for tests that kill one.
func bridgeProcess(spec string) {
	var c struct {
		Config

		Server, Token, Dir string
	}
	if err := json.Unmarshal([]byte(spec), &c); err != nil { //nolint:musttag // the names of the fields are those of TestKills
		panic(err)
	}
	api, err := client.New(c.Server, c.Token, client.Options{})
	if err != nil {
		panic(err)
	}
	c.Core.Client, c.Core.Dir, c.Core.ProgressInterval, c.Core.RetryDelay = api, c.Dir, 50*time.Millisecond, 20*time.Millisecond
	c.Core.Log = stderrLog()
	b, err := New(c.Config)
	if err != nil {
		panic(err)
	}
	if err := b.Run(context.Background(), context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// TestKills holds that every task gets exactly one final report and none is lost while the bridge is killed with
// kill -9, Redis loses all it knows, and the host goes deaf, at any moment.
func TestKills(t *testing.T) {
	r := mloctest.StartRedis(t)
	h, f, dir := startHost(t, r), startFleet(t, "m1"), t.TempDir()
	cfg := f.config(t, r, dir)
	spec, _ := json.Marshal(map[string]any{
		"Redis": cfg.Redis, "WorkerID": "w1", "Results": cfg.Results, "Heartbeat": cfg.Heartbeat, "BaseURL": h.http.URL, "Patience": time.Minute, "Confirm": 500 * time.Millisecond,
		"Retry": cfg.RetryDelay, "Server": f.server.URL(), "Token": f.server.AdminToken(), "Dir": filepath.Join(dir, "bridge"),
	})
	log, err := os.Create(filepath.Join(dir, "bridge.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	var bridge *exec.Cmd
	kill := func() {
		if bridge != nil {
			_ = bridge.Process.Kill()
			_ = bridge.Wait()
		}
	}
	start := func() {
		bridge = exec.Command(os.Args[0], "bridge", string(spec))
		bridge.Stderr = log
		if err := bridge.Start(); err != nil {
			t.Fatal(err)
		}
	}
	defer func() {
		kill()
		if t.Failed() {
			text := read(t, log.Name())
			t.Logf("the bridge said:\n%s", text[max(0, len(text)-8000):])
		}
	}()
	start()
	const tasks = 8
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	chance := rand.New(rand.NewPCG(seed, 1))
	for n := range tasks {
		task := &hostTask{id: fmt.Sprintf("task-%d", n), status: "PENDING"}
		h.mu.Lock()
		h.tasks[task.id] = task
		h.mu.Unlock()
		harm, at := n%4, time.Now().Add(time.Duration(chance.IntN(120))*time.Millisecond)
		deadline := time.Now().Add(testTimeout)
		for h.snapshot(task).finals == 0 {
			if time.Now().After(deadline) {
				t.Fatalf("task %d has no final report after harm %d: %+v", n, n%4, h.snapshot(task))
			}
			h.offer(task, h.document("echo", map[string]any{"n": n}))
			if harm > 0 && h.snapshot(task).message != nil && time.Now().After(at) {
				switch harm {
				case 1:
					kill()
					start()
				case 2:
					r.Kill()
					r.Start()
				case 3:
					kill()
					r.Kill()
					r.Start()
					start()
				}
				harm = 0
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	testkit.Await(t, "all is quiet", func() bool { return h.rdb.HGet(t.Context(), "worker:w1", "status").Val() == "IDLE" })
	for n := range tasks {
		h.mu.Lock()
		got := *h.tasks[fmt.Sprintf("task-%d", n)]
		h.mu.Unlock()
		if got.finals != 1 || got.status != "DONE" {
			t.Errorf("task %d has %d final reports and is %s: %s", n, got.finals, got.status, got.err)
		}
		if h.result(got.id) == nil {
			t.Errorf("task %d has no result", n)
		}
	}
}

// offer gives a task that waits to worker w1 if it is IDLE, as the host does each moment, and is its watchdog, which in
// the real host takes a minute longer.
func (h *host) offer(t *hostTask, doc map[string]any) {
	ctx := h.tb.Context()
	now := h.snapshot(t)
	if now.status == "DISPATCHED" && now.dispatched.Before(time.Now().Add(-5*time.Second)) && h.rdb.Exists(ctx, "worker:w1:hb").Val() == 0 {
		h.mu.Lock()
		t.status, t.worker = "PENDING", ""
		h.mu.Unlock()
	}
	if now.status != "PENDING" || h.rdb.HGet(ctx, "worker:w1", "status").Val() != "IDLE" || h.rdb.Exists(ctx, "worker:w1:hb").Val() == 0 {
		return
	}
	h.mu.Lock()
	t.status, t.worker, t.dispatched = "DISPATCHED", "w1", time.Now()
	t.message = map[string]any{"task_id": t.id, "task": doc, "assigned_worker": "w1", "dispatched_at": time.Now().UTC().Format(time.RFC3339Nano)}
	b, _ := json.Marshal(t.message)
	h.mu.Unlock()
	if n, err := h.rdb.Publish(ctx, "tasks", b).Result(); err != nil || n == 0 {
		h.mu.Lock()
		if t.finals == 0 {
			t.status, t.worker = "PENDING", ""
		}
		h.mu.Unlock()
		return
	}
	h.rdb.HSet(ctx, "worker:w1", "status", "RUNNING")
}

// TestBadHosts holds that what a host publishes wrongly has no effect, and that a task which is published again and again
// is carried out once.
func TestBadHosts(t *testing.T) {
	r := mloctest.StartRedis(t)
	h, f := startHost(t, r), startFleet(t, "m1")
	startBridge(t, f.config(t, r, t.TempDir()))
	one := h.dispatch("w1", newTask(), h.document("echo", nil))
	for _, bad := range []string{"", "nonsense", "[]", "7", "null", `{"task_id":"x"}`, `{"task_id":"x","assigned_worker":"w2","task":{}}`, `{"task_id":"../../x","assigned_worker":"w1","task":{}}`, strings.Repeat("[", 100_000), strings.Repeat("x", 9<<20)} {
		h.publish("tasks", []byte(bad))
	}
	h.waitEnded(one)
	for range 5 {
		h.publish("tasks", one.message)
	}
	for name, tc := range map[string]struct{ task, want string }{
		"no type":         {`{"spec":{}}`, "no spec.taskType"},
		"no object":       {`"text"`, "not what it should be"},
		"unknown type":    {`{"spec":{"taskType":"no-such-thing"}}`, "no-such-thing"},
		"bad destination": {`{"spec":{"taskType":"echo","output":{"destination":{"type":"http","url":"ftp://x"}}}}`, "destination.url"},
		"no model":        {`{"spec":{"taskType":"inference","data":{"items":["x"]}}}`, "identifier"},
		"no kind here":    {`{"spec":{"taskType":"sft","model":{"source":{"identifier":"x"}},"data":{"prompts":["a"]},"resources":{"hardware":{"memory":"90Ti"}}}}`, "no worker"},
		"no collection":   {`{"spec":{"taskType":"rag","qdrant":{"url":"http://127.0.0.1:1"}}}`, "collection"},
	} {
		id := newTask()
		testkit.Await(t, "the worker is IDLE", func() bool { return h.rdb.HGet(t.Context(), "worker:w1", "status").Val() == "IDLE" })
		bad := &hostTask{id: id, status: "DISPATCHED", worker: "w1"}
		h.mu.Lock()
		h.tasks[id] = bad
		h.mu.Unlock()
		h.publish("tasks", []byte(`{"task_id":"`+id+`","assigned_worker":"w1","dispatched_at":"2001-01-01T00:00:00+00:00","task":`+tc.task+`}`)) // a clock that is wrong
		if got := h.waitEnded(bad); got != "FAILED" || !strings.Contains(h.snapshot(bad).err, tc.want) {
			t.Errorf("%s: it is %s: %s", name, got, h.snapshot(bad).err)
		}
	}
	if n := h.snapshot(one).finals; n != 1 {
		t.Errorf("the task that was repeated has %d final reports", n)
	}
	if n := len(f.jobs(t)); n != 1 {
		t.Errorf("Muster had %d jobs", n)
	}
}
