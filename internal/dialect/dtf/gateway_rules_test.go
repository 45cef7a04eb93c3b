package dtf_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dialect/dtf"
	"github.com/muster-dev/muster/internal/testkit"
)

// rawConn is one connection of a worker whose every frame the test chooses.
type rawConn struct {
	tb     testing.TB
	ws     *websocket.Conn
	token  string
	frames chan map[string]any
}

// connect connects, authenticates with the key or a token, and registers.
func (g *gatewayEnv) connect(id, token string) *rawConn {
	g.tb.Helper()
	r := &rawConn{tb: g.tb, ws: g.dialRaw(), frames: make(chan map[string]any, 100)}
	go func() {
		defer close(r.frames)
		for {
			_, text, err := r.ws.Read(context.Background())
			if err != nil {
				return
			}
			var m map[string]any
			if err := json.Unmarshal(text, &m); err != nil {
				g.tb.Errorf("a frame that is not JSON: %s", text)
				return
			}
			r.frames <- m
		}
	}()
	auth := fmt.Sprintf(`{"type":"auth","auth_type":"api_key","api_key":%q,"worker_id":%q}`, testJoin, id)
	if token != "" {
		auth = fmt.Sprintf(`{"type":"auth","auth_type":"token","token":%q}`, token)
	}
	r.send(auth)
	m := r.expect("auth_response")
	r.token, _ = m["token"].(string)
	if r.token == "" {
		r.token = token
	}
	r.send(fmt.Sprintf(`{"type":"register","worker_id":%q,"hostname":"vm","capabilities":%s}`, id, capabilitiesOfVM))
	if m := r.expect("register_response"); m["worker_id"] != id {
		g.tb.Errorf("it registered as %v", m)
	}
	return r
}

func (r *rawConn) send(text string) {
	r.tb.Helper()
	if err := r.ws.Write(r.tb.Context(), websocket.MessageText, []byte(text)); err != nil {
		r.tb.Fatal(err)
	}
}

// expect waits for the next frame and checks its type.
func (r *rawConn) expect(kind string) map[string]any {
	r.tb.Helper()
	select {
	case m := <-r.frames:
		if m["type"] != kind {
			r.tb.Fatalf("the next frame is %v, not %s", m, kind)
		}
		return m
	case <-time.After(testTimeout):
		r.tb.Fatalf("timeout waiting for %s", kind)
	}
	return nil
}

// expectNone checks that no frame comes for a while.
func (r *rawConn) expectNone(d time.Duration) {
	r.tb.Helper()
	select {
	case m, open := <-r.frames:
		if open {
			r.tb.Fatalf("a frame came: %v", m)
		}
	case <-time.After(d):
	}
}

func (r *rawConn) heartbeat(more string) {
	r.tb.Helper()
	r.send(`{"type":"heartbeat"` + more + `}`)
	r.expect("heartbeat_response")
}

func (r *rawConn) execute() string {
	r.tb.Helper()
	return fmt.Sprint(r.expect("execute_task")["task_id"])
}

func (r *rawConn) report(id, digest string) {
	r.tb.Helper()
	r.send(fmt.Sprintf(`{"type":"task_result","task_id":%q,"status":"completed","execution_time_seconds":0.5,"result":{"algorithm":"sha256","digest":%q,"length":1}}`, id, digest))
	if m := r.expect("task_result_response"); m["task_id"] != id {
		r.tb.Errorf("the answer is to %v", m)
	}
}

// submitHashes submits tasks and returns their ids at the REST interface.
func (g *gatewayEnv) submitHashes(n int) (ids []string) {
	g.tb.Helper()
	for i := range n {
		ids = append(ids, g.submit("hash", fmt.Sprintf(`{"payload":"%d"}`, i)))
	}
	return ids
}

// Rules a and b: frames are answered in order and before anything else is sent, and a task goes only after the result of the one before.
func TestGatewayAnswersComeFirst(t *testing.T) {
	g := startGateway(t, map[string]string{"batch": "4"}, dtf.Tuning{Resend: time.Minute})
	var ids []string
	for i := range 20 { // of a type that is never in a batch, so that the next one is there while one is reported
		ids = append(ids, g.submit("test", fmt.Sprintf(`{"test_file":"%d.py"}`, i)))
	}
	w := g.connect("w1", "")
	w.heartbeat("")
	for i := range ids {
		id := w.execute()
		w.send(`{"type":"heartbeat","task_status":{"task_id":"` + id + `","status":"running","progress":50}}`)
		if i < 5 {
			w.send(`{"type":"dance"}`)
		}
		w.expect("heartbeat_response")
		if i < 5 {
			w.expect("error")
		}
		w.report(id, "d") // its answer comes before the next task
	}
	for _, id := range ids {
		if out := g.waitTask(id); out["status"] != "completed" || out["worker_id"] != "w1" {
			t.Errorf("%v", out)
		}
	}
	w.expectNone(50 * time.Millisecond)
}

// Rule c: nothing is sent before the first heartbeat of a worker's process, which shows its key on its first connection; on later ones, with its
// token, a task may follow the registration at once. Rule d: the task of one connection is reported on another.
func TestGatewayWaitsForTheFirstHeartbeat(t *testing.T) {
	g := startGateway(t, nil, dtf.Tuning{Resend: time.Minute})
	ids := g.submitHashes(3)
	first := g.connect("w1", "")
	first.expectNone(300 * time.Millisecond)
	first.heartbeat("")
	task := first.execute()
	_ = first.ws.CloseNow()
	second := g.connect("w1", first.token)
	second.report(task, "d")
	next := second.execute()
	_ = second.ws.CloseNow()
	third := g.connect("w1", second.token)
	third.report(next, "d")
	third.execute() // at once: it is not the first connection
	_ = third.ws.CloseNow()
	again := g.connect("w1", "") // the worker's process was started again
	again.expectNone(300 * time.Millisecond)
	if out := g.waitTask(ids[0]); out["status"] != "completed" {
		t.Errorf("%v", out)
	}
}

// Rule e: a task of which heartbeats say nothing is sent again, one of which they speak is not, and two results are one.
func TestGatewaySendsAgain(t *testing.T) {
	g := startGateway(t, nil, dtf.Tuning{Resend: 300 * time.Millisecond})
	id := g.submitHashes(1)[0]
	w := g.connect("w1", "")
	w.heartbeat("")
	task := w.execute()
	for end := time.Now().Add(time.Second); time.Now().Before(end); { // for much longer than the time after which a task is sent again
		w.heartbeat(`,"task_status":{"task_id":"` + task + `","status":"running","progress":10}`)
		w.expectNone(50 * time.Millisecond)
	}
	if _, out := g.call("GET", "/api/tasks/"+id, testAdmin, ""); out["status"] != "running" || out["progress"] != 10.0 {
		t.Errorf("%v", out)
	}
	w.expectNone(100 * time.Millisecond) // silent, but no heartbeats without a word of it
	w.heartbeat("")
	w.heartbeat("")
	if again := w.execute(); again != task {
		t.Errorf("%s was sent again, not %s", again, task)
	}
	w.report(task, "first")
	w.report(task, "second")
	w.heartbeat(`,"task_status":{"task_id":"` + task + `","status":"running","progress":99}`) // progress after the end
	if out := g.waitTask(id); out["status"] != "completed" || !strings.Contains(fmt.Sprint(out["result"]), "first") {
		t.Errorf("%v", out)
	}
}

// Rule f: a newer connection replaces an older one, which still accepts results and is then closed.
func TestGatewayReplacesConnections(t *testing.T) {
	g := startGateway(t, nil, dtf.Tuning{Resend: time.Minute})
	ids := g.submitHashes(2)
	old := g.connect("w1", "")
	old.heartbeat("")
	task := old.execute()
	fresh := g.connect("w1", old.token)
	old.report(task, "d")
	if out := g.waitTask(ids[0]); out["status"] != "completed" {
		t.Errorf("%v", out)
	}
	next := fresh.execute() // and not on the earlier one
	old.send(`{"type":"register","worker_id":"w1","capabilities":{}}`)
	select {
	case m, open := <-old.frames:
		if open {
			t.Errorf("a frame came on the earlier one: %v", m)
		}
	case <-time.After(testTimeout):
		t.Error("it is not closed")
	}
	fresh.report(next, "d")
}

// A worker of an older version, whose connection is useless after one result, gets one task on each.
func TestGatewayOneTaskOnEachConnection(t *testing.T) {
	g := startGateway(t, nil, dtf.Tuning{Resend: 2 * time.Second})
	g.submitHashes(4)
	w := g.connect("w1", "")
	w.heartbeat("")
	w.report(w.execute(), "d")
	lost := w.execute() // it is run, but its result cannot be sent
	_ = w.ws.CloseNow()
	for range 2 {
		w = g.connect("w1", w.token)
		w.expectNone(20 * time.Millisecond)
		w.heartbeat("")
		_ = w.ws.CloseNow()
	}
	w = g.connect("w1", w.token)
	if again := w.execute(); again != lost {
		t.Errorf("%s was sent, not %s", again, lost)
	}
	w.report(lost, "d")
	w.expectNone(100 * time.Millisecond) // the next one waits for another connection
	_ = w.ws.CloseNow()
	w = g.connect("w1", w.token)
	w.report(w.execute(), "d")
}

// A worker is unhealthy if its machine is; the reported state of its connection does not count, since the report arrived.
func TestGatewayHealth(t *testing.T) {
	g := startGateway(t, nil, dtf.Tuning{})
	w := g.connect("w1", "")
	for _, tc := range []struct {
		health string
		want   bool
	}{
		{`{"is_healthy":false,"health_metrics":{"is_healthy":false,"resource_healthy":false,"connection_healthy":true}}`, true},
		{`{"is_healthy":false,"health_metrics":{"is_healthy":false,"resource_healthy":true,"connection_healthy":false}}`, false},
		{`{"is_healthy":false}`, true},
		{`{"is_healthy":true}`, false},
	} {
		w.heartbeat(`,"health_status":` + tc.health)
		testkit.Await(t, tc.health, func() bool {
			w, err := g.client.Worker(t.Context(), "vm")
			return err == nil && (w.Constrained != "") == tc.want
		})
	}
}

// Tasks show the DTF id of their worker, also after their end, and can be listed by it.
func TestGatewayNamesWorkers(t *testing.T) {
	g := startGateway(t, nil, dtf.Tuning{})
	g.worker("w1", nil)
	id := g.submit("hash", `{"payload":"a"}`)
	if out := g.waitTask(id); out["worker_id"] != "w1" {
		t.Errorf("%v", out)
	}
	for name, want := range map[string]float64{"w1": 1, "w2": 0} {
		if _, out := g.call("GET", "/api/tasks?worker_id="+name, testAdmin, ""); out["total"] != want {
			t.Errorf("tasks of %s: %v", name, out)
		}
	}
	n, err := muster.ParseJobID(id)
	if err != nil {
		t.Fatal(err)
	}
	task, err := g.client.Task(t.Context(), muster.TaskID{Job: n})
	if err != nil {
		t.Fatal(err)
	}
	if w, err := g.client.Worker(t.Context(), string(task.Worker)); err != nil || w.Labels["dtf.worker"] != "w1" {
		t.Errorf("%+v, %v", w, err)
	}
}
