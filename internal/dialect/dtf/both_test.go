package dtf_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/dialect/dialecttest"
	"github.com/muster-dev/muster/internal/dialect/dtf"
	"github.com/muster-dev/muster/internal/serverd"
	"github.com/muster-dev/muster/internal/testkit"
)

// Our bridge at our gateway, with real work, while either is started again: each task ends well, and no attempt becomes two jobs of the other fleet.
func TestBridgeAtGateway(t *testing.T) {
	g := startGateway(t, nil, dtf.Tuning{})
	w := startServer(t, serverd.Config{})
	w.worker(t)
	dir := t.TempDir()
	at := &coordinator{key: testJoin, http: &httptest.Server{URL: g.url}}
	begin := func() (stop func()) { return dialecttest.Background(t, newTestBridge(t, w, dir, nil, at).Run) }
	stop := begin()
	testkit.Await(t, "the fleet is a worker", func() bool { return g.hasWorker("w1") })
	var jobs []muster.Job
	const n = 9
	for i := range n {
		jobs = append(jobs, g.job(fmt.Sprintf(`{"tasks":[{"kind":"hash","input":{"data":"%d"}}]}`, i)))
		switch i {
		case 3:
			stop()
			stop = begin()
		case 6:
			g.stop()
			g.start()
		}
	}
	ids := []string{g.submit("hash", `{"payload":"abc"}`)}
	stop()
	begin()
	attempts := 0
	for _, j := range jobs {
		task := g.waitJob(j)
		attempts += task.Attempt
		if task.State != muster.Succeeded || !strings.Contains(string(task.Result), `"length":1`) {
			t.Errorf("job %d is %s: %s %s", j.ID, task.State, task.Message, task.Result)
		}
	}
	for _, id := range ids {
		if out := g.waitTask(id); out["status"] != "completed" {
			t.Errorf("%v", out)
		}
		attempts++
	}
	did := 0
	for _, err := range w.client.Jobs(t.Context(), client.JobQuery{}) {
		if err != nil {
			t.Fatal(err)
		}
		did++
	}
	// An attempt that the gateway's restart interrupted before it was sent is repeated, and becomes no job.
	if did > attempts || did < n+len(ids) {
		t.Errorf("%d attempts of %d tasks became %d jobs", attempts, n+len(ids), did)
	}
	// What our worker can do beyond DTF's is known: it heeds cancellations and does the work of its kinds.
	all, err := g.client.Workers(t.Context())
	if err != nil || len(all) != 1 || slices.Contains(all[0].UnsupportedFeatures, "cancel") || !slices.Contains(all[0].Kinds, "test") {
		t.Errorf("%+v, %v", all, err)
	}
}

// A task that is cancelled here is cancelled on the other side of a bridge.
func TestBridgeAtGatewayCancels(t *testing.T) {
	if err := exec.CommandContext(t.Context(), "python3", "-c", "import pytest").Run(); err != nil {
		t.Skip("there is no pytest")
	}
	g := startGateway(t, nil, dtf.Tuning{})
	w := startServer(t, serverd.Config{})
	w.worker(t)
	tests := t.TempDir()
	if err := os.WriteFile(filepath.Join(tests, "test_long.py"), []byte("import time\ndef test_long(): time.sleep(600)\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	b := newTestBridge(t, w, t.TempDir(), func(cfg *dtf.BridgeConfig) { cfg.TestsDir = tests }, &coordinator{key: testJoin, http: &httptest.Server{URL: g.url}})
	dialecttest.Background(t, b.Run)
	id := g.submit("test", `{"test_file":"test_long.py"}`)
	states := func(s muster.JobState) func() bool {
		return func() bool {
			for j, err := range w.client.Jobs(t.Context(), client.JobQuery{}) {
				return err == nil && j.State == s
			}
			return false
		}
	}
	testkit.Await(t, "it is a job of the other fleet", states(muster.JobRunning))
	if code, out := g.call("POST", "/api/tasks/"+id+"/cancel", testAdmin, ""); code != 200 {
		t.Fatalf("%d %v", code, out)
	}
	testkit.Await(t, "it is cancelled there", states(muster.JobCancelled))
}

const conformKey = "0123456789abcdef0123456789abcdef"

// The suite that all gateways pass, with a worker whose connections last.
func TestConform(t *testing.T) {
	system, _ := dtf.NewTuned(dtf.Tuning{
		Resend: 200 * time.Millisecond, Grace: time.Second,
		Security: `{"secret_key":"s3cr3t","api_keys":{"` + conformKey + `":{"roles":["worker"]}}}`,
	})
	dialecttest.Conform(t, dialecttest.Suite{
		System: system,
		Task:   muster.TaskSpec{Kind: "hash", Input: json.RawMessage(`{"data":"abc"}`)},
		Start: func(t *testing.T, url, id, _ string) dialecttest.Worker {
			t.Helper()
			w := &conformWorker{t: t, url: url, id: id, taken: make(chan string, 100)}
			ctx, cancel := context.WithCancel(context.Background())
			w.cancel = cancel
			w.group.Go(func() { w.run(ctx) })
			return w
		},
		Paths:        []string{"/api/tasks", "/api/workers/register", "/ws"},
		Capabilities: dialecttest.Capabilities{Progress: true, Message: true, DetectsLoss: true},
	})
}

// conformWorker is a worker that reads all that it is sent.
type conformWorker struct {
	t      *testing.T
	url    string
	id     string
	taken  chan string
	cancel func()
	group  sync.WaitGroup

	mu      sync.Mutex
	ws      *websocket.Conn
	running string
	share   float64
	answers map[string]chan string
	had     map[string]bool
	reports map[string]string // of tasks that ended
}

func (w *conformWorker) run(ctx context.Context) {
	for ctx.Err() == nil {
		w.once(ctx)
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// once is one connection.
func (w *conformWorker) once(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ws, _, err := websocket.Dial(ctx, strings.Replace(w.url, "http", "ws", 1)+"/ws", nil)
	if err != nil {
		return
	}
	defer ws.CloseNow()
	say := func(text string) { _ = ws.Write(ctx, websocket.MessageText, []byte(text)) }
	say(fmt.Sprintf(`{"type":"auth","auth_type":"api_key","api_key":%q,"worker_id":%q}`, conformKey, w.id))
	say(fmt.Sprintf(`{"type":"register","worker_id":%q,"hostname":%q,"capabilities":%s}`, w.id, w.id, capabilitiesOfVM))
	w.mu.Lock()
	w.ws = ws
	w.mu.Unlock()
	beats := sync.WaitGroup{}
	defer beats.Wait()
	defer cancel()
	beats.Go(func() {
		for ctx.Err() == nil {
			say(w.heartbeat())
			select {
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
		}
	})
	for {
		_, raw, err := ws.Read(ctx)
		if err != nil {
			return
		}
		var m struct {
			Type   string `json:"type"`
			TaskID string `json:"task_id"`
		}
		if json.Unmarshal(raw, &m) != nil {
			continue
		}
		w.mu.Lock()
		switch {
		case m.Type == "execute_task" && w.reports[m.TaskID] != "": // the report was lost
			say(w.reports[m.TaskID])
		case m.Type == "execute_task" && !w.had[m.TaskID]:
			if w.had == nil {
				w.had = map[string]bool{}
			}
			w.had[m.TaskID], w.running, w.share = true, m.TaskID, 0
			w.taken <- m.TaskID
		case m.Type == "task_result_response" && w.answers[m.TaskID] != nil:
			w.answers[m.TaskID] <- ""
			delete(w.answers, m.TaskID)
		}
		w.mu.Unlock()
	}
}

func (w *conformWorker) heartbeat() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.running == "" {
		return fmt.Sprintf(`{"type":"heartbeat","worker_id":%q}`, w.id)
	}
	return fmt.Sprintf(`{"type":"heartbeat","worker_id":%q,"task_status":{"task_id":%q,"status":"running","progress":%v}}`, w.id, w.running, w.share*100)
}

func (w *conformWorker) NextTask(ctx context.Context) (dialecttest.Assignment, error) {
	select {
	case id := <-w.taken:
		return &conformAssignment{w, id}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// report sends a result and waits a while for the answer, since the connection may break.
func (w *conformWorker) report(ctx context.Context, id, rest string) error {
	answer := make(chan string, 1)
	text := fmt.Sprintf(`{"type":"task_result","worker_id":%q,"task_id":%q,%s}`, w.id, id, rest)
	w.mu.Lock()
	ws := w.ws
	if w.reports == nil {
		w.reports = map[string]string{}
	}
	w.reports[id] = text
	if w.answers == nil {
		w.answers = map[string]chan string{}
	}
	w.answers[id] = answer
	if w.running == id {
		w.running = ""
	}
	w.mu.Unlock()
	if ws == nil {
		return muster.Errorf(muster.Unavailable, "there is no connection")
	}
	if err := ws.Write(ctx, websocket.MessageText, []byte(text)); err != nil {
		return err
	}
	select {
	case <-answer:
		return nil
	case <-time.After(2 * time.Second):
		return muster.Errorf(muster.Unavailable, "there is no answer")
	}
}

func (w *conformWorker) Report(ctx context.Context, task string) error {
	return w.report(ctx, task, `"status":"completed","result":{}`)
}

func (w *conformWorker) Crash() {
	w.cancel()
	w.group.Wait()
}

type conformAssignment struct {
	w  *conformWorker
	id string
}

func (k *conformAssignment) ID() string { return k.id }

func (k *conformAssignment) Progress(_ context.Context, fraction float64, _ string) error {
	k.w.mu.Lock()
	defer k.w.mu.Unlock()
	if k.w.running == k.id {
		k.w.share = fraction
	}
	return nil
}

func (k *conformAssignment) Succeed(ctx context.Context, word string) error {
	return k.w.report(ctx, k.id, fmt.Sprintf(`"status":"completed","execution_time_seconds":1.5,"result":{"digest":%q}`, word))
}

func (k *conformAssignment) Fail(ctx context.Context, message string) error {
	return k.w.report(ctx, k.id, fmt.Sprintf(`"status":"failed","error":%q`, message))
}
