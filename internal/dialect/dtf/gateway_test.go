package dtf_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/dialect"
	"github.com/muster-dev/muster/internal/dialect/dialecttest"
	"github.com/muster-dev/muster/internal/dialect/dtf"
	"github.com/muster-dev/muster/internal/serverd"
	"github.com/muster-dev/muster/internal/testkit"
)

const (
	testAdmin = "dtf-test-admin-token-0123456789"
	testJoin  = "dtf-test-join-token-0123456789"
)

// gatewayEnv is a server with a gateway for DTF, which can be started again on the same folder and port.
type gatewayEnv struct {
	tb        testing.TB
	data      string
	address   string
	url       string
	options   map[string]string
	tuning    dtf.Tuning
	client    *client.Client
	hasWorker func(worker string) bool
	stop      func()
}

func startGateway(tb testing.TB, options map[string]string, tuning dtf.Tuning) *gatewayEnv {
	tb.Helper()
	g := &gatewayEnv{tb: tb, data: tb.TempDir(), address: "127.0.0.1:0", options: options, tuning: tuning}
	g.start()
	return g
}

func (g *gatewayEnv) start() {
	g.tb.Helper()
	g.tuning.Resend = cmp.Or(g.tuning.Resend, 300*time.Millisecond)
	system, hasWorker := dtf.NewTuned(g.tuning)
	g.hasWorker = hasWorker
	s := dialecttest.Start(g.tb, serverd.Config{
		Data: g.data, Heartbeat: muster.Duration(200 * time.Millisecond), AdminToken: testAdmin, JoinToken: testJoin, Dialects: []dialect.Config{{Name: "dtf", Address: g.address, Options: g.options}}, Systems: []dialect.System{system},
	})
	g.client, g.stop, g.url = s.Client, s.Stop, s.Gateways()[0].URL
	g.address = strings.TrimPrefix(g.url, "http://")
}

// worker starts a scripted worker.
func (g *gatewayEnv) worker(id string, change func(*worker)) *worker {
	g.tb.Helper()
	w := &worker{tb: g.tb, url: g.url, id: id, key: testJoin, defect: true, beat: 100 * time.Millisecond, work: 30 * time.Millisecond, hw: capabilitiesOfVM}
	if change != nil {
		change(w)
	}
	dialecttest.Background(g.tb, w.run)
	return w
}

// call is a request of a DTF client.
func (g *gatewayEnv) call(method, path, key, body string) (int, map[string]any) {
	g.tb.Helper()
	req, err := http.NewRequestWithContext(g.tb.Context(), method, g.url+path, strings.NewReader(body))
	if err != nil {
		g.tb.Fatal(err)
	}
	if key != "" {
		req.Header.Set("X-API-Key", key)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		g.tb.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		g.tb.Fatal(err)
	}
	var out map[string]any
	_ = json.Unmarshal(raw, &out)
	return resp.StatusCode, out
}

// submit submits a task as a DTF client.
func (g *gatewayEnv) submit(taskType, config string) string {
	g.tb.Helper()
	code, out := g.call("POST", "/api/tasks", testAdmin, fmt.Sprintf(`{"type":%q,"config":%s}`, taskType, config))
	if code != http.StatusOK || out["status"] != "success" || out["created"] != true {
		g.tb.Fatalf("%d %v", code, out)
	}
	return fmt.Sprint(out["task_id"])
}

// waitTask waits for the end of a task.
func (g *gatewayEnv) waitTask(id string) map[string]any {
	g.tb.Helper()
	var out map[string]any
	testkit.Await(g.tb, "the end of task "+id, func() bool {
		_, out = g.call("GET", "/api/tasks/"+id, testAdmin, "")
		return slices.Contains([]any{"completed", "failed", "cancelled"}, out["status"])
	})
	return out
}

func (g *gatewayEnv) job(spec string) muster.Job {
	g.tb.Helper()
	var s muster.Spec
	if err := json.Unmarshal([]byte(spec), &s); err != nil {
		g.tb.Fatal(err)
	}
	j, err := g.client.Submit(g.tb.Context(), &s, client.SubmitOptions{})
	if err != nil {
		g.tb.Fatal(err)
	}
	return j
}

func (g *gatewayEnv) task(j muster.Job) muster.Task {
	g.tb.Helper()
	t, err := g.client.Task(g.tb.Context(), muster.TaskID{Job: j.ID})
	if err != nil {
		g.tb.Fatal(err)
	}
	return t
}

func (g *gatewayEnv) waitJob(j muster.Job) muster.Task {
	g.tb.Helper()
	testkit.Await(g.tb, "the end of job "+j.ID.String(), func() bool { return g.task(j).State.Final() })
	return g.task(j)
}

// A whole session of the real worker, with its defect, as a transcript: every task arrives, each is run once, and results come on other connections.
func TestGatewaySession(t *testing.T) {
	g := startGateway(t, nil, dtf.Tuning{})
	w := g.worker("w1", nil)
	testkit.Await(t, "the worker is there", func() bool { all, _ := g.client.Workers(t.Context()); return len(all) == 1 })
	j := g.job(`{"tasks":[{"kind":"hash","input":{"data":"abc"}}]}`)
	if task := g.waitJob(j); task.State != muster.Succeeded || !strings.Contains(string(task.Result), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad") {
		t.Errorf("hash: %s %s %s", task.State, task.Message, task.Result)
	}
	out := g.waitTask(g.submit("custom", `{"name":"setup_environment","parameters":{"clear_cache":true}}`))
	if out["status"] != "completed" || fmt.Sprint(out["result"]) != "map[name:setup_environment output:Executed custom task setup_environment success:true]" {
		t.Errorf("custom: %v", out)
	}
	if out := g.waitTask(g.submit("train", `{}`)); out["status"] != "failed" || out["error"] != "Unknown task type: train" {
		t.Errorf("an unknown type: %v", out)
	}
	all, err := g.client.Workers(t.Context())
	if err != nil || len(all) != 1 || !slices.Contains(all[0].Tags, "dialect:dtf") || all[0].Resources.CPUs != 2 || slices.Contains(all[0].Kinds, "test") || !slices.Contains(all[0].UnsupportedFeatures, "cancel") {
		t.Errorf("the worker: %+v, %v", all, err)
	}
	testkit.Await(t, "more connections", func() bool { _, _, conns := w.results(); return conns >= 3 })
	ran, _, _ := w.results()
	if len(ran) < 3 {
		t.Errorf("it ran %v", ran)
	}
	w.mu.Lock()
	script := strings.Join(w.script, "\n") + "\n"
	w.mu.Unlock()
	for _, id := range ran {
		script = strings.ReplaceAll(script, id, "TASK")
	}
	golden(t, "gateway-worker.txt", unique(script))
}

// unique removes repeated lines, and answers to heartbeats, of which the worker receives only some.
func unique(text string) string {
	var out []string
	for line := range strings.Lines(text) {
		if !slices.Contains(out, line) && !strings.Contains(line, "heartbeat_response") {
			out = append(out, line)
		}
	}
	return strings.Join(out, "")
}

// Many tasks, a worker that loses messages: each ends once.
func TestGatewayEveryTaskArrives(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*worker){
		"HEAD":         func(w *worker) { w.beat = 40 * time.Millisecond },
		"long tasks":   func(w *worker) { w.beat, w.work = 30*time.Millisecond, 100*time.Millisecond },
		"R1, steadily": func(w *worker) { w.defect = false },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := startGateway(t, nil, dtf.Tuning{})
			w := g.worker("w1", change)
			var ids []string
			for i := range 8 {
				ids = append(ids, g.submit("hash", fmt.Sprintf(`{"payload":"%d"}`, i)))
			}
			for _, id := range ids {
				if out := g.waitTask(id); out["status"] != "completed" {
					t.Errorf("%v", out)
				}
			}
			ran, lost, conns := w.results()
			t.Logf("%d runs, %d connections, thrown away: %v", len(ran), conns, lost)
		})
	}
}

// Results that the real worker invents do not count as results of Muster's kinds, unless the operator allows it.
func TestGatewaySimulatedWork(t *testing.T) {
	g := startGateway(t, nil, dtf.Tuning{})
	g.worker("w1", nil)
	j := g.job(`{"tasks":[{"kind":"test","input":{"test_file":"t.py"}}]}`)
	out := g.waitTask(g.submit("test", `{"test_file":"t.py"}`)) // the DTF client's own is carried as it is
	if out["status"] != "completed" {
		t.Errorf("%v", out)
	}
	if task := g.task(j); task.State != muster.Queued {
		t.Errorf("a test of Muster is %s", task.State)
	}
	var log bytes.Buffer
	n, err := muster.ParseJobID(fmt.Sprint(out["task_id"]))
	if err != nil {
		t.Fatal(err)
	}
	for line, err := range g.client.Logs(t.Context(), muster.TaskID{Job: n}, client.LogOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		log.Write(line.Data)
	}
	if !strings.Contains(log.String(), "the result is simulated") {
		t.Errorf("its log is %q", log.String())
	}

	allowed := startGateway(t, map[string]string{"simulated": "allow"}, dtf.Tuning{})
	allowed.worker("w1", nil)
	if task := allowed.waitJob(allowed.job(`{"tasks":[{"kind":"test","input":{"test_file":"t.py"}}]}`)); task.State != muster.Succeeded {
		t.Errorf("allowed: %s %s", task.State, task.Message)
	}
	if task := allowed.waitJob(allowed.job(`{"tasks":[{"kind":"benchmark","input":{"model":"bert","batch_sizes":[1,2]}}]}`)); task.State != muster.Succeeded {
		t.Errorf("allowed: %s %s", task.State, task.Message)
	}
}

// A worker of a version without hash rejects the first hash; another worker runs the task.
func TestGatewayOldWorker(t *testing.T) {
	g := startGateway(t, nil, dtf.Tuning{})
	old := g.worker("old", func(w *worker) { w.old = true })
	j := g.job(`{"tasks":[{"kind":"hash","input":{"data":"abc"}}]}`)
	testkit.Await(t, "it says that it does not know hash", func() bool { ran, _, _ := old.results(); return len(ran) > 0 })
	g.worker("new", nil)
	if task := g.waitJob(j); task.State != muster.Succeeded {
		t.Errorf("%s: %s", task.State, task.Message)
	}
	testkit.Await(t, "it is not asked again", func() bool {
		w, err := g.client.Worker(t.Context(), "vm")
		_ = w
		all, _ := g.client.Workers(t.Context())
		return err != nil || slices.ContainsFunc(all, func(w muster.Worker) bool { return !slices.Contains(w.Kinds, "hash") })
	})
}

// Batches: what may be together goes together, and each of them ends.
func TestGatewayBatches(t *testing.T) {
	g := startGateway(t, map[string]string{"batch": "4"}, dtf.Tuning{})
	var ids []string
	for i := range 6 {
		ids = append(ids, g.submit("hash", fmt.Sprintf(`{"payload":"%d"}`, i)))
	}
	for range 2 {
		ids = append(ids, g.submit("test", `{"test_file":"t.py"}`))
	}
	w := g.worker("w1", nil)
	for _, id := range ids {
		if out := g.waitTask(id); out["status"] != "completed" {
			t.Errorf("%v", out)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.ContainsFunc(w.script, func(line string) bool {
		return strings.Contains(line, "execute_task_batch") && !strings.Contains(line, `"task_type":"test"`)
	}) {
		t.Error("nothing came as a batch")
	}
}

// The server is started again in the middle of a task: the worker authenticates with its token, and its result counts.
func TestGatewayRestart(t *testing.T) {
	g := startGateway(t, nil, dtf.Tuning{})
	w := g.worker("w1", func(w *worker) { w.work = 700 * time.Millisecond })
	j := g.job(`{"tasks":[{"kind":"hash","input":{"data":"abc"}}]}`)
	testkit.Await(t, "it runs", func() bool { return g.task(j).State == muster.Running })
	g.stop()
	g.start()
	if task := g.waitJob(j); task.State != muster.Succeeded || task.Attempt != 1 {
		t.Errorf("%s after %d attempts: %s", task.State, task.Attempt, task.Message)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.refused != nil {
		t.Errorf("the worker: %v", w.refused)
	}
}

func TestGatewayCancelAndLateResults(t *testing.T) {
	g := startGateway(t, nil, dtf.Tuning{})
	w := g.worker("w1", func(w *worker) { w.work = 500 * time.Millisecond })
	id := g.submit("hash", `{"payload":"a"}`)
	testkit.Await(t, "it runs", func() bool {
		_, out := g.call("GET", "/api/tasks/"+id, testAdmin, "")
		return out["status"] == "running"
	})
	if code, out := g.call("POST", "/api/tasks/"+id+"/cancel", testAdmin, ""); code != 200 || out["status"] != "success" {
		t.Errorf("%d %v", code, out)
	}
	if out := g.waitTask(id); out["status"] != "cancelled" {
		t.Errorf("%v", out)
	}
	next := g.submit("hash", `{"payload":"b"}`)
	if out := g.waitTask(next); out["status"] != "completed" { // it is free again once the result of the cancelled one came
		t.Errorf("%v", out)
	}
	if out := g.waitTask(id); out["status"] != "cancelled" {
		t.Errorf("a late result counted: %v", out)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if slices.ContainsFunc(w.script, func(line string) bool { return strings.Contains(line, "cancel_task") }) {
		t.Error("cancel_task was sent to a worker that cannot heed it")
	}
}

// dialRaw is a connection for frames that no worker sends.
func (g *gatewayEnv) dialRaw() *websocket.Conn {
	g.tb.Helper()
	ws, _, err := websocket.Dial(g.tb.Context(), "ws://"+g.address+"/ws", nil)
	if err != nil {
		g.tb.Fatal(err)
	}
	g.tb.Cleanup(func() { _ = ws.CloseNow() })
	return ws
}

func exchange(tb testing.TB, ws *websocket.Conn, text string) string {
	tb.Helper()
	if err := ws.Write(tb.Context(), websocket.MessageText, []byte(text)); err != nil {
		return "closed"
	}
	ctx, cancel := context.WithTimeout(tb.Context(), testTimeout)
	defer cancel()
	_, raw, err := ws.Read(ctx)
	if err != nil {
		return "closed"
	}
	return string(raw)
}

// Peers that do what none should have no effect on others and get answers in DTF's own words.
func TestGatewayBadPeers(t *testing.T) {
	g := startGateway(t, nil, dtf.Tuning{})
	g.worker("w1", nil)
	auth := `{"type":"auth","auth_type":"api_key","api_key":"` + testJoin + `","worker_id":"bad"}`
	for _, tc := range []struct {
		name  string
		steps [][2]string // what is said, and what is in the answer
	}{
		{"no JSON", [][2]string{{"{", "Invalid message"}, {"[]", "Invalid message"}, {auth, `"status":"success"`}}},
		{"not authenticated", [][2]string{{`{"type":"heartbeat"}`, "Not authenticated"}, {`{"type":"register","worker_id":"w1"}`, "Not authenticated"}}},
		{"a wrong key", [][2]string{{strings.Replace(auth, testJoin, "nope", 1), `"status":"error"`}, {auth, "closed"}}},
		{"a key that may not make workers", [][2]string{{`{"type":"auth","auth_type":"token","token":"` + dtf.VectorToken + `"}`, `"status":"error"`}}},
		{"wrong types", [][2]string{{auth, "success"}, {`{"type":"register","worker_id":5}`, "wrong type"}, {`{"type":"register","worker_id":"bad","capabilities":{"cpu":"many"}}`, "wrong type"}}},
		{"not registered", [][2]string{{auth, "success"}, {`{"type":"heartbeat"}`, "Worker not registered"}, {`{"type":"task_result","task_id":"x","status":"completed"}`, "Worker not registered"}}},
		{"unknown things", [][2]string{
			{auth, "success"},
			{`{"type":"register","worker_id":"bad","hostname":"h","capabilities":{"hardware":["cuda"],"cpu":{"cores":-1,"threads":1e300},"memory":{"total_gb":1e300},"gpu":{"count":1000000,"name":"Invented ` + strings.Repeat("9", 500) + `","memory_gb":1e300,"cuda_compute":99},"tags":["a b","dialect:qubix"]},"more":1}`, "register_response"},
			{`{"type":"dance"}`, "Unknown message type: dance"},
			{`{"type":"task_result","task_id":"never","status":"completed","result":{"x":NaN}}`, `"task_result_response"`},
			{`{"type":"task_result","task_id":"never","status":"completed"}`, `"task_result_response"`},
			{`{"type":"task_result","status":"completed"}`, "needs a task_id"},
			{`{"type":"heartbeat","worker_id":"w1","task_status":{"task_id":"never","progress":50}}`, "not of w1"},
			{`{"type":"heartbeat","worker_id":"bad","timestamp":"an hour ago","hardware_metrics":{"cpu_percent":-5,"memory_percent":1e9},"task_status":{"task_id":"never","progress":1e9}}`, "heartbeat_response"},
			{`{"type":"register","worker_id":"another"}`, "not of another"},
		}},
		{"a long frame", [][2]string{{auth, "success"}, {`{"type":"register","worker_id":"` + strings.Repeat("x", 2<<20) + `"}`, "closed"}}},
	} {
		ws := g.dialRaw()
		ws.SetReadLimit(1 << 20)
		for _, step := range tc.steps {
			if got := exchange(t, ws, step[0]); !strings.Contains(got, step[1]) {
				t.Errorf("%s: %.100s: %s, not %s", tc.name, step[0], got, step[1])
			}
		}
	}
	code, out := g.call("POST", "/api/tasks", testAdmin, `{"type":"hash","config":{"payload":"a"},"requirements":{"tags":["cpu"]}}`) // a tag of w1 only
	if code != http.StatusOK {
		t.Fatalf("%d %v", code, out)
	}
	if out := g.waitTask(fmt.Sprint(out["task_id"])); out["status"] != "completed" || out["worker_id"] != "w1" {
		t.Errorf("another worker is harmed: %v", out)
	}
	all, err := g.client.Workers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range all {
		if w := &all[i]; w.Name == "h" && (len(w.Resources.GPUs) != dtf.MaxGPUs || w.Resources.CPUs != 4096 || slices.Contains(w.Tags, "dialect:qubix")) {
			t.Errorf("an invented machine: %d GPUs, %v CPUs, %v", len(w.Resources.GPUs), w.Resources.CPUs, w.Tags)
		}
	}
}

// Two workers with one id: the later connection replaces the earlier one; with another key it is refused.
func TestGatewayTwoWorkersWithOneID(t *testing.T) {
	g := startGateway(t, nil, dtf.Tuning{})
	g.worker("w1", func(w *worker) { w.defect = false })
	testkit.Await(t, "the worker is there", func() bool { return g.hasWorker("w1") })
	ws := g.dialRaw()
	if got := exchange(t, ws, `{"type":"auth","auth_type":"api_key","api_key":"`+testAdmin+`","worker_id":"w1"}`); !strings.Contains(got, "success") {
		t.Fatal(got)
	}
	if got := exchange(t, ws, `{"type":"register","worker_id":"w1","hostname":"h","capabilities":{}}`); !strings.Contains(got, "Registration failed") {
		t.Errorf("another key took the id over: %s", got)
	}
	g.worker("w1", func(w *worker) { w.defect = false })
	for i := range 4 {
		if out := g.waitTask(g.submit("hash", fmt.Sprintf(`{"payload":"%d"}`, i))); out["status"] != "completed" {
			t.Errorf("%v", out)
		}
	}
}

// A token is for its worker only, and falls with the key for which it was issued.
func TestGatewayTokens(t *testing.T) {
	g := startGateway(t, nil, dtf.Tuning{})
	var answer struct {
		Token    string `json:"token"`
		WorkerID string `json:"worker_id"`
	}
	if err := json.Unmarshal([]byte(exchange(t, g.dialRaw(), `{"type":"auth","auth_type":"api_key","api_key":"`+testJoin+`"}`)), &answer); err != nil || len(answer.WorkerID) != 36 {
		t.Fatalf("%+v, %v", answer, err)
	}
	auth := `{"type":"auth","auth_type":"token","token":"` + answer.Token + `"}`
	ws := g.dialRaw()
	if got := exchange(t, ws, auth); !strings.Contains(got, answer.WorkerID) {
		t.Errorf("with the token: %s", got)
	}
	if got := exchange(t, ws, `{"type":"register","worker_id":"another","capabilities":{}}`); !strings.Contains(got, "not of another") {
		t.Errorf("as another worker: %s", got)
	}
	g.stop()
	g.start()
	if got := exchange(t, g.dialRaw(), auth); !strings.Contains(got, answer.WorkerID) {
		t.Errorf("after a restart: %s", got)
	}
	for path, want := range map[string]int{"/api/tasks": 403, "/api/workers/" + answer.WorkerID: 404} {
		if code, out := g.call("GET", path, answer.Token, ""); code != want {
			t.Errorf("%s with a worker's token: %d %v", path, code, out)
		}
	}
}

// Where a secret is configured, messages that are not signed with it have no effect.
func TestGatewaySignatures(t *testing.T) {
	g := startGateway(t, nil, dtf.Tuning{Secret: "s3cr3t"})
	ws := g.dialRaw()
	if got := exchange(t, ws, `{"type":"auth","auth_type":"api_key","api_key":"`+testJoin+`","worker_id":"w1"}`); !strings.Contains(got, "success") || strings.Contains(got, "signature") {
		t.Fatal(got)
	}
	sign := func(m map[string]any, at time.Time) string {
		raw, err := dtf.Sign("s3cr3t", m, at)
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	register := map[string]any{"type": "register", "worker_id": "w1", "capabilities": map[string]any{}}
	for name, text := range map[string]string{"unsigned": `{"type":"register","worker_id":"w1"}`, "an old one": sign(register, time.Now().Add(-61*time.Second)), "a changed one": strings.Replace(sign(register, time.Now()), "w1", "w2", 1)} {
		if got := exchange(t, ws, text); !strings.Contains(got, dtf.ErrSignature) {
			t.Errorf("%s: %s", name, got)
		}
	}
	for _, text := range []string{sign(register, time.Now().Add(time.Hour)), sign(map[string]any{"type": "heartbeat", "worker_id": "w1"}, time.Now())} {
		got := exchange(t, ws, text)
		if strings.Contains(got, "error") || !dtf.Verify("s3cr3t", got, time.Now()) {
			t.Errorf("%s", got)
		}
	}
}

func TestGatewayREST(t *testing.T) {
	g := startGateway(t, map[string]string{"tasks": "muster"}, dtf.Tuning{Security: `{"secret_key":"s3cr3t","required_roles":["worker"],"api_keys":{"adm":{"roles":["admin"]},"obs":{"roles":["observer"]},"wrk":{"roles":["worker"]}}}`})
	for _, tc := range []struct {
		method, path, key, body string
		code                    int
		want                    string
	}{
		{"GET", "/", "", "", 200, "status:ok"},
		{"GET", "/status", "", "", 200, "status:ok"},
		{"GET", "/api/tasks", "", "", 401, "error:Authentication required"},
		{"GET", "/api/tasks", "nope", "", 401, "error:Authentication required"},
		{"GET", "/api/tasks", "wrk", "", 403, "none of the roles"},
		{"GET", "/api/tasks", "obs", "", 200, "tasks:[]"},
		{"POST", "/api/tasks", "obs", `{"type":"hash"}`, 403, "none of the roles"},
		{"POST", "/api/tasks", "adm", `{"config":{}}`, 400, "Missing required field: type"},
		{"POST", "/api/tasks", "adm", `{"type":"train"}`, 400, "Unknown task type: train"},
		{"POST", "/api/tasks", "adm", `{"type":"hash","config":{"data":"x","algorithm":"rot13"}}`, 400, "algorithm"},
		{"POST", "/api/tasks", "adm", `{"type":"hash","requirements":{"min_cuda_compute":1000}}`, 400, "min_cuda_compute"},
		{"POST", "/api/tasks", "adm", `{`, 400, "JSON"},
		{"POST", "/api/tasks", "adm", `{"type":"hash","config":{"data":"` + strings.Repeat("x", 2<<20) + `"}}`, 413, "exceeds"},
		{"POST", "/api/tasks", "adm", `{"task_id":"mine-1","type":"hash","priority":5,"config":{"data":"x"},"requirements":{"hardware":["cuda"],"min_memory_gb":4,"min_cuda_compute":7.2,"device":"A100"}}`, 200, "task_id:mine-1"},
		{"POST", "/api/tasks", "adm", `{"task_id":"mine-1","type":"hash","priority":5,"config":{"data":"x"},"requirements":{"hardware":["cuda"],"min_memory_gb":4,"min_cuda_compute":7.2,"device":"A100"}}`, 200, "task_id:mine-1"},
		{"GET", "/api/tasks/mine-1", "obs", "", 200, "priority:5"},
		{"GET", "/api/tasks?status=pending&type=hash&limit=5", "obs", "", 200, "total:1"},
		{"GET", "/api/tasks?status=running", "obs", "", 200, "total:0"},
		{"GET", "/api/tasks?limit=x", "obs", "", 400, "not a number"},
		{"GET", "/api/tasks/unknown", "obs", "", 404, "Task not found"},
		{"POST", "/api/tasks/mine-1/cancel", "adm", "", 200, "status:success"},
		{"GET", "/api/tasks/mine-1", "obs", "", 200, "status:cancelled"},
		{"POST", "/api/workers/register", "wrk", `{"hostname":"h","capabilities":{"hardware":["cpu"]},"worker_id":"r1"}`, 200, "worker_id:r1"},
		{"POST", "/api/workers/register", "wrk", `{"host":"h","port":8000}`, 200, "success:true"},
		{"POST", "/api/workers/register", "wrk", `{}`, 400, "hostname"},
		{"GET", "/api/workers/r1", "obs", "", 200, "status:offline"},
		{"GET", "/api/workers", "obs", "", 200, "workers:[map["},
		{"GET", "/api/workers/unknown", "obs", "", 404, "Worker not found"},
		{"GET", "/elsewhere", "adm", "", 404, "Not found"},
	} {
		code, out := g.call(tc.method, tc.path, tc.key, tc.body)
		if code != tc.code || !strings.Contains(fmt.Sprint(out), tc.want) {
			t.Errorf("%s %s as %q: %d %v, not %d %s", tc.method, tc.path, tc.key, code, out, tc.code, tc.want)
		}
	}
}

// TestCallsFollowTheTable makes each call with each key: what a key may do in DTF follows from auth.Can.
func TestCallsFollowTheTable(t *testing.T) {
	t.Parallel()
	g := startGateway(t, nil, dtf.Tuning{})
	created := func() string {
		t.Helper()
		code, out := g.call("POST", "/api/tasks", testAdmin, `{"type":"hash","config":{"data":"x"}}`)
		id, _ := out["task_id"].(string)
		if code != http.StatusOK || id == "" {
			t.Fatalf("a task is answered with %d %v", code, out)
		}
		return id
	}
	task, n := created(), 0
	callers := dialecttest.CallersOf(t, g.client.URL(), testAdmin, muster.DefaultProject, "another")
	join := callers[slices.IndexFunc(callers, func(c dialecttest.Caller) bool { return c.Role == auth.Join && c.Project == "" })]
	if code, out := g.call("POST", "/api/workers/register", join.Secret, `{"worker_id":"own","hostname":"h","capabilities":{"hardware":["cpu"]}}`); code != http.StatusOK {
		t.Fatalf("the registration is answered with %d %v", code, out)
	}
	dialecttest.CheckCalls(t, g.url, dtf.Patterns(), map[string]dialecttest.Call{
		"GET /ws":         {Open: true, Want: http.StatusUpgradeRequired}, // a session authenticates itself
		"GET /status":     {Open: true},
		"GET /api/status": {Open: true},
		"GET /{$}":        {Open: true},

		"POST /api/tasks":             {Verb: auth.SubmitJobs, Body: `{"type":"hash","config":{"data":"x"}}`},
		"GET /api/tasks":              {Verb: auth.ReadJobs},
		"GET /api/tasks/{id}":         {Verb: auth.ReadJobs, Project: muster.DefaultProject, Path: "/api/tasks/" + task},
		"POST /api/tasks/{id}/cancel": {Verb: auth.SubmitJobs, Project: muster.DefaultProject, New: func() (string, string) { return "/api/tasks/" + created() + "/cancel", "" }},
		"GET /api/workers":            {Verb: auth.ReadJobs},
		"GET /workers":                {Verb: auth.ReadJobs},
		"GET /api/workers/{id}":       {Verb: auth.ReadJobs, Owner: join.KeyID, Path: "/api/workers/own"},
		"POST /api/workers/register": {Verb: auth.JoinWorkers, New: func() (string, string) {
			n++
			return "", fmt.Sprintf(`{"worker_id":"w-%d","hostname":"h","capabilities":{"hardware":["cpu"]}}`, n)
		}},
	}, callers)
}
