package mlochost_test

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dialect/dialecttest"
	"github.com/muster-dev/muster/internal/dialect/mloc/mlochost"
	"github.com/muster-dev/muster/internal/dialect/mloc/mloctest"
	"github.com/muster-dev/muster/internal/testkit"
)

func echoTask(input string) muster.TaskSpec {
	return muster.TaskSpec{Kind: "echo", Input: json.RawMessage(input), Retries: muster.Retries{Max: 3, Backoff: muster.Duration(1e7)}}
}

// TestAGenuineWorkerRunsTasksOfMuster holds that a worker of MLOC is one of the server's: what it says of itself, its result and its files.
func TestAGenuineWorkerRunsTasksOfMuster(t *testing.T) {
	t.Parallel()
	w := newEnv(t, nil)
	s := newFakeWorker(t, w.redis, "w1")
	s.execute = func(m message) (map[string]any, map[string]string, string) {
		result, _, _ := echo(m)
		return result, map[string]string{"final_model.tar.gz": "weights"}, ""
	}
	s.register().listen()
	w.active("w1")
	one, _ := w.foreignWorker("w1")
	if one.Price != 1 || one.Resources.CPUs != 2 || one.Resources.MaxTasks != 1 || one.Labels["dialect"] != "mloc" || !strings.Contains(strings.Join(one.UnsupportedFeatures, " "), "files") {
		t.Errorf("the worker is %+v", one)
	}
	task := w.waitJob(w.submit(echoTask(`{"question": "why?"}`)).ID)
	if task.State != muster.Succeeded || string(task.Result) != `{"question":"why?"}` {
		t.Fatalf("the task is %s (%s), its result %s", task.State, task.Message, task.Result)
	}
	names := map[string]bool{}
	for _, a := range task.Artifacts {
		names[a.Name] = true
	}
	if !names["final_model.tar.gz"] || !names["responses.json"] {
		t.Errorf("its artifacts are %v", names)
	}
	s.sigint()
	testkit.Await(t, "the worker left", func() bool {
		one, ok := w.foreignWorker("w1")
		return !ok || one.State == muster.WorkerGone
	})
}

// TestAFailureIsTriedElsewhere holds that a failure of a worker is one of the attempt, with its words.
func TestAFailureIsTriedElsewhere(t *testing.T) {
	t.Parallel()
	w := newEnv(t, nil)
	bad := newFakeWorker(t, w.redis, "bad")
	bad.execute = func(message) (map[string]any, map[string]string, string) {
		return nil, nil, "ValueError: no such model"
	}
	bad.register().listen()
	w.active("bad")
	job := w.submit(muster.TaskSpec{Kind: "echo", Input: json.RawMessage(`{}`)})
	if task := w.waitJob(job.ID); task.State != muster.Failed || task.Message != "ValueError: no such model" || task.Reason != muster.BadInput {
		t.Errorf("the task is %s, %s: %q", task.State, task.Reason, task.Message)
	}
}

// TestATaskThatWasNotHeardIsPublishedAgain holds that a worker which is idle before it listens gets its task all the same.
func TestATaskThatWasNotHeardIsPublishedAgain(t *testing.T) {
	t.Parallel()
	w := newEnv(t, nil)
	other := newFakeWorker(t, w.redis, "other") // so that the message has a receiver
	other.register().listen()
	w.active("other")
	s := newFakeWorker(t, w.redis, "late").register()
	w.active("late")
	spec := echoTask(`{"n": 1}`)
	spec.Where.Workers = []string{"late"}
	job := w.submit(spec)
	testkit.Await(t, "it is published", func() bool { return len(w.redis.Client().HGet(t.Context(), "worker:late", "muster_task").Val()) > 0 })
	s.listen()
	if task := w.waitJob(job.ID); task.State != muster.Succeeded {
		t.Fatalf("the task is %s: %s", task.State, task.Message)
	}
	if len(other.ran()) != 0 {
		t.Error("a worker ran a task of another one")
	}
}

// TestAWorkerThatIsDeafIsGivenNothing holds that a task does not wait for good for a worker that never begins it.
func TestAWorkerThatIsDeafIsGivenNothing(t *testing.T) {
	t.Parallel()
	w := newEnv(t, nil)
	deaf := newFakeWorker(t, w.redis, "deaf").register()
	dialecttest.Background(t, func(ctx context.Context) error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(200 * time.Millisecond):
				deaf.heartbeat()
			}
		}
	})
	w.active("deaf")
	job := w.submit(echoTask(`{"n": 2}`))
	testkit.Await(t, "the worker is constrained", func() bool {
		one, _ := w.foreignWorker("deaf")
		return strings.Contains(one.Constrained, "does not begin")
	})
	newFakeWorker(t, w.redis, "good").register().listen()
	if task := w.waitJob(job.ID); task.State != muster.Succeeded {
		t.Fatalf("the task is %s: %s", task.State, task.Message)
	}
}

// TestAKilledWorkerLosesItsTask holds that the end of a heartbeat's key is the end of a worker, and that its later words have no effect.
func TestAKilledWorkerLosesItsTask(t *testing.T) {
	t.Parallel()
	w := newEnv(t, nil)
	began := make(chan string, 10)
	first := newFakeWorker(t, w.redis, "first")
	first.execute = func(m message) (map[string]any, map[string]string, string) {
		began <- m.raw
		<-t.Context().Done()
		return nil, nil, "killed"
	}
	first.register().listen()
	w.active("first")
	spec := echoTask(`{"n": 3}`)
	spec.Disconnect.Grace = muster.Duration(2 * time.Second)
	job := w.submit(spec)
	old := message{}
	if err := json.Unmarshal([]byte(<-began), &old); err != nil {
		t.Fatal(err)
	}
	first.kill() // not waited for: it is stuck
	first.kill = nil
	second := newFakeWorker(t, w.redis, "second")
	second.register().listen()
	task := w.waitJob(job.ID)
	if task.State != muster.Succeeded || task.Attempt < 2 { // more where this machine is slow
		t.Fatalf("the task is %s after attempt %d: %s", task.State, task.Attempt, task.Message)
	}
	// A report of the lost attempt gets the usual response, and changes nothing.
	if reason := first.deliver(old.Task.Spec, old.TaskID, map[string]any{"ok": true, "echo": map[string]any{"input": "late"}}); reason != "" {
		t.Error(reason)
	}
	first.event("tasks.events", map[string]any{"type": "TASK_SUCCEEDED", "task_id": old.TaskID, "payload": map[string]any{}})
	if again, err := w.admin.Task(t.Context(), task.ID); err != nil || string(again.Result) != `{"n":3}` {
		t.Errorf("the result became %s", again.Result)
	}
}

// TestRedisIsEmptied holds that genuine workers, which never register again, continue after a flush and after a restart of Redis.
func TestRedisIsEmptied(t *testing.T) {
	t.Parallel()
	w := newEnv(t, nil)
	s := newFakeWorker(t, w.redis, "w1")
	s.register().listen()
	w.active("w1")
	for n, empty := range []func(){
		func() { w.redis.Client().FlushDB(t.Context()) },
		func() {
			w.redis.Kill()
			testkit.Await(t, "the gateway says that Redis is away", func() bool { return w.gateway.Ready() != nil })
			w.redis.Start()
		},
	} {
		empty()
		testkit.Await(t, "the worker is back", func() bool { return w.redis.Client().HGet(t.Context(), "worker:w1", "worker_id").Val() == "w1" })
		if task := w.waitJob(w.submit(echoTask(`{"n": 4}`)).ID); task.State != muster.Succeeded {
			t.Fatalf("%d: the task is %s: %s", n, task.State, task.Message)
		}
	}
}

// TestTheServerIsRestarted holds that a task continues over a restart of the server, and that its result counts.
func TestTheServerIsRestarted(t *testing.T) {
	t.Parallel()
	w := newEnv(t, nil)
	began, goOn := make(chan string, 10), make(chan bool)
	s := newFakeWorker(t, w.redis, "w1")
	s.execute = func(m message) (map[string]any, map[string]string, string) {
		began <- m.TaskID
		<-goOn
		return echo(m)
	}
	s.register().listen()
	w.active("w1")
	job := w.submit(echoTask(`{"n": 5}`))
	<-began
	attempt := 0 // the first one is lost if it is assigned while the worker's session is replaced
	testkit.Await(t, "it runs", func() bool {
		task, err := w.admin.Task(t.Context(), muster.TaskID{Job: job.ID})
		attempt = task.Attempt
		return err == nil && task.State == muster.Running
	})
	w.stop()
	w.start()
	testkit.Await(t, "the gateway has Redis", func() bool { return w.gateway.Ready() == nil })
	close(goOn)
	if task := w.waitJob(job.ID); task.State != muster.Succeeded || task.Attempt != attempt || string(task.Result) != `{"n":5}` {
		t.Fatalf("the task is %s after attempt %d, not %d: %s", task.State, task.Attempt, attempt, task.Message)
	}
	if n := len(s.ran()); n != 1 {
		t.Errorf("it was run %d times", n)
	}
}

// TestNewsThatWasLost holds that a task ends though its worker's news did not arrive: the hash of the worker tells.
func TestNewsThatWasLost(t *testing.T) {
	t.Parallel()
	w := newEnv(t, nil)
	s := newFakeWorker(t, w.redis, "w1")
	s.silent = true
	s.register().listen()
	w.active("w1")
	if task := w.waitJob(w.submit(echoTask(`{"n": 6}`)).ID); task.State != muster.Succeeded || string(task.Result) != `{"n":6}` {
		t.Fatalf("the task is %s: %s", task.State, task.Message)
	}
}

// TestAWorkerThatStaysRunning holds that a task whose result is here ends though nothing else comes, and that its worker is given others: what it said last
// was lost with Redis.
func TestAWorkerThatStaysRunning(t *testing.T) {
	t.Parallel()
	w := newEnv(t, nil)
	s := newFakeWorker(t, w.redis, "w1")
	s.silent, s.stuck = true, true
	s.register().listen()
	w.active("w1")
	for range 2 {
		if task := w.waitJob(w.submit(echoTask(`{"n": 6}`)).ID); task.State != muster.Succeeded || task.Attempt != 1 || string(task.Result) != `{"n":6}` {
			t.Fatalf("the task is %s: %s", task.State, task.Message)
		}
	}
}

// TestTwoHosts holds that a database has one host.
func TestTwoHosts(t *testing.T) {
	t.Parallel()
	w := newEnv(t, nil)
	cfg := w.config
	cfg.Address = "127.0.0.1:0"
	second := &env{tb: t, redis: w.redis, dir: t.TempDir(), listen: "127.0.0.1:0", config: cfg, log: w.log}
	second.start()
	testkit.Await(t, "the second host is refused", func() bool {
		err := second.gateway.Ready()
		return err != nil && strings.Contains(err.Error(), "has another host")
	})
	newFakeWorker(t, w.redis, "w1").register().listen()
	w.active("w1")
	w.stop()
	testkit.Await(t, "the second host takes over", func() bool { return second.gateway.Ready() == nil })
	second.active("w1")
}

// TestElastic holds that a worker can be disabled and enabled, and that the server shows it.
func TestElastic(t *testing.T) {
	t.Parallel()
	w := newEnv(t, nil)
	newFakeWorker(t, w.redis, "w1").register().listen()
	w.active("w1")
	if status, got := w.request(http.MethodPost, "/workers/w1/elastic", `{"enabled": false}`, ""); status != 200 || got != `{"elastic_disabled":true,"enabled":false,"worker_id":"w1"}` {
		t.Fatalf("%d %s", status, got)
	}
	testkit.Await(t, "the server knows", func() bool {
		one, _ := w.foreignWorker("w1")
		return strings.Contains(one.Constrained, "disabled by POST")
	})
	if _, got := w.request(http.MethodGet, "/workers/w1", "", ""); !strings.Contains(got, `"elastic_disabled":true`) {
		t.Error(got)
	}
	job := w.submit(echoTask(`{}`))
	if status, _ := w.request(http.MethodPost, "/workers/w1/elastic", `{"enabled": true}`, ""); status != 200 {
		t.Fatal(status)
	}
	if task := w.waitJob(job.ID); task.State != muster.Succeeded {
		t.Error(task.Message)
	}
	for path, want := range map[string]int{"/workers/none/elastic": 404, "/workers/w1/elastic": 422} {
		body := `{"enabled": true}`
		if want == 422 {
			body = `{"enabled": "maybe"}`
		}
		if status, got := w.request(http.MethodPost, path, body, ""); status != want || !strings.Contains(got, `"detail"`) {
			t.Errorf("%s: %d %s", path, status, got)
		}
	}
}

// TestBadWorkers holds that what workers say wrongly has no effect on anyone else.
func TestBadWorkers(t *testing.T) {
	t.Parallel()
	w := newEnv(t, nil)
	r := w.redis.Client()
	ctx := t.Context()
	for _, bad := range []string{
		"", "null", "[]", "{", `{"type":5}`, `{"type":"REGISTER"}`, `{"type":"TASK_SUCCEEDED","worker_id":"w1"}`, `{"type":"TASK_SUCCEEDED","worker_id":"w1","task_id":"unknown","payload":"x"}`,
		`{"type":"HEARTBEAT","worker_id":"../../x","metrics":7}`, `{"type":"status","worker_id":"ghost"}`, strings.Repeat("[", 100_000), `{"type":"TASK_FAILED","worker_id":"ghost","task_id":{"a":1}}`,
	} {
		r.Publish(ctx, "tasks.events", bad)
		r.Publish(ctx, "workers.events", bad)
	}
	// Registrations of all sorts: stale, damaged, with another's name, with invented hardware, an hour off.
	r.SAdd(ctx, "workers:ids", "stale", "string", "../../etc", "liar", "inventor", strings.Repeat("x", 1000))
	r.Set(ctx, "worker:string", "no hash", 0)
	r.HSet(ctx, "worker:stale", "worker_id", "stale", "status", "IDLE")
	r.HSet(ctx, "worker:liar", "worker_id", "good", "status", "IDLE")
	r.Set(ctx, "worker:liar:hb", "x", time.Minute)
	gpu := `{"index":-5,"name":"NVIDIA ` + strings.Repeat("H", 5000) + `","uuid":"same","memory_total_bytes":-1}`
	r.HSet(ctx, "worker:inventor", "worker_id", "inventor", "status", "IDLE", "started_at", "2099-01-01T00:00:00+00:00", "cost_per_hour", "-3", "pid", "x", "tags_json", `{"no":"list"}`,
		"hardware_json", `{"cpu":{"logical_cores":1000000000},"memory":{"total_bytes":-5},"gpu":{"gpus":[`+strings.TrimSuffix(strings.Repeat(gpu+",", 40), ",")+`]}}`)
	r.Set(ctx, "worker:inventor:hb", "2001-01-01T00:00:00+00:00", time.Minute)
	good := newFakeWorker(t, w.redis, "good")
	good.execute = func(m message) (map[string]any, map[string]string, string) {
		// Before it ends, others speak in its place.
		for _, e := range []map[string]any{{"type": "TASK_FAILED", "error": "not mine"}, {"type": "TASK_SUCCEEDED"}} {
			e["task_id"], e["worker_id"], e["ts"] = m.TaskID, "liar", "2099-01-01T00:00:00+00:00"
			b, _ := json.Marshal(e)
			r.Publish(t.Context(), "tasks.events", b)
		}
		if status, got := w.request(http.MethodPost, "/api/v1/results", `{"task_id":"`+m.TaskID+`","worker_id":"liar","result":{"echo":{"input":"stolen"}}}`, ""); status != 200 || !strings.Contains(got, `"ok":true`) {
			t.Errorf("the result of another worker: %d %s", status, got)
		}
		return echo(m)
	}
	good.register().listen()
	w.active("good")
	w.active("inventor")
	spec := echoTask(`{"n": 7}`)
	spec.Where.Workers = []string{"good"}
	task := w.waitJob(w.submit(spec).ID)
	if task.State != muster.Succeeded || string(task.Result) != `{"n":7}` {
		t.Fatalf("the task is %s (%s): %s", task.State, task.Message, task.Result)
	}
	// Words after the end change nothing.
	good.event("tasks.events", map[string]any{"type": "TASK_SUCCEEDED", "task_id": good.ran()[0].TaskID})
	good.event("tasks.events", map[string]any{"type": "TASK_FAILED", "task_id": good.ran()[0].TaskID, "error": "no"})
	for _, id := range []string{"stale", "string", "liar", "ghost"} {
		if _, there := w.foreignWorker(id); there {
			t.Errorf("%s became a worker of the server", id)
		}
	}
	testkit.Await(t, "a worker whose heartbeats ended before is shown as stale", func() bool {
		_, got := w.request(http.MethodGet, "/workers/stale", "", "")
		return strings.Contains(got, `"stale":true`)
	})
	if one, _ := w.foreignWorker("inventor"); len(one.Resources.GPUs) > mlochost.MaxGPUs || one.Resources.CPUs > 4096 || one.Resources.Memory < 0 {
		t.Errorf("%+v", one.Resources)
	}
	if task = w.waitJob(w.submit(spec).ID); task.State != muster.Succeeded {
		t.Errorf("the next task is %s: %s", task.State, task.Message)
	}
}

// TestASimulatedResultDoesNotCount holds that nothing simulated becomes a result.
func TestASimulatedResultDoesNotCount(t *testing.T) {
	t.Parallel()
	w := newEnv(t, nil)
	s := newFakeWorker(t, w.redis, "w1")
	s.execute = func(message) (map[string]any, map[string]string, string) {
		return map[string]any{"ok": true, "simulated": true}, nil, ""
	}
	s.register().listen()
	w.active("w1")
	job := w.submit(muster.TaskSpec{Kind: "echo", Input: json.RawMessage(`{}`)})
	if task := w.waitJob(job.ID); task.State != muster.Failed || task.Reason != muster.Dependency {
		t.Errorf("the task is %s, %s", task.State, task.Reason)
	}
}

// request asks the gateway and returns the status and the body.
func (w *env) request(method, path, body, token string) (int, string) {
	w.tb.Helper()
	req, err := http.NewRequestWithContext(w.tb.Context(), method, w.gateway.URL()+path, strings.NewReader(body))
	if err != nil {
		w.tb.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		w.tb.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		w.tb.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// TestTheEmbeddedRedis holds that the database for trying things at home does all that the gateway needs.
func TestTheEmbeddedRedis(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	_ = l.Close()
	_, port, _ := net.SplitHostPort(addr)
	w := newEnv(t, map[string]string{"redis": "embedded:" + port})
	s := newFakeWorker(t, &mloctest.Redis{TB: t, Addr: addr}, "w1")
	s.register().listen()
	w.active("w1")
	if task := w.waitJob(w.submit(echoTask(`{"n": 8}`)).ID); task.State != muster.Succeeded {
		t.Fatalf("the task is %s: %s", task.State, task.Message)
	}
	s.sigkill()
	testkit.Await(t, "the heartbeat's key ends", func() bool { return s.r.TTL(t.Context(), "worker:w1:hb").Val() < 0 })
	testkit.Await(t, "the worker is unreachable", func() bool {
		one, _ := w.foreignWorker("w1")
		return one.State == muster.WorkerUnreachable
	})
}

// endless is a body that does not end.
type endless struct{ n int }

func (e *endless) Read(p []byte) (int, error) {
	if e.n <= 0 {
		return 0, io.EOF
	}
	n := min(len(p), e.n)
	e.n -= n
	for i := range p[:n] {
		p[i] = 'x'
	}
	return n, nil
}

// TestLargeBodies holds that 100 MB where a document is expected are refused.
func TestLargeBodies(t *testing.T) {
	t.Parallel()
	w := newEnv(t, nil)
	for _, path := range []string{"/api/v1/results", "/api/v1/tasks", "/workers/x/elastic"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.gateway.URL()+path, &endless{100 << 20})
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			continue // the connection was closed under the body
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusRequestEntityTooLarge {
			t.Errorf("%s: %s", path, resp.Status)
		}
	}
	w.redis.Client().Publish(t.Context(), "tasks.events", strings.Repeat("x", 20<<20))
	newFakeWorker(t, w.redis, "w1").register().listen()
	w.active("w1")
}
