package dtf_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// worker is a scripted worker of DTF, written from contracts.md 3. With defect it has the bug of the real one: an idle worker opens a new
// connection after each heartbeat, and while it waits for an answer it considers the next message to be the answer and drops it.
type worker struct {
	tb     testing.TB
	url    string
	id     string
	key    string
	defect bool
	old    bool          // R2: it does not know hash
	beat   time.Duration // between heartbeats
	work   time.Duration // that a task takes
	hw     string        // capabilities

	mu      sync.Mutex
	token   string
	ran     []string // ids of tasks, each time that they began
	lost    []string // types of messages that were thrown away
	conns   int
	script  []string
	refused error            // why it was not let in, once it was not
	pending []map[string]any // results that go out on the next connection
}

type wireTask struct {
	TaskID   string          `json:"task_id"`
	TaskType string          `json:"task_type"`
	Config   json.RawMessage `json:"config"`
}

const capabilitiesOfVM = `{"hostname":"vm","platform":"Linux-6.18","hardware":["cpu"],"cpu":{"model":"Unknown","cores":2,"threads":2,"freq_mhz":0.0},"memory":{"total_gb":23.54,"available_gb":22.84},"webnn":{"available":false},"webgpu":{"available":false}}`

func (w *worker) note(who string, raw []byte) {
	line := who + ": " + stable(raw)
	w.mu.Lock()
	defer w.mu.Unlock()
	if slices.Contains(w.script, line) { // the same again with each connection
		return
	}
	w.script = append(w.script, line)
}

func (w *worker) results() (ran, lost []string, conns int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.ran), slices.Clone(w.lost), w.conns
}

// link is one connection of the worker.
type workerConn struct {
	w      *worker
	ws     *websocket.Conn
	frames chan []byte
}

func (w *worker) dial(ctx context.Context) (*workerConn, error) {
	ws, _, err := websocket.Dial(ctx, strings.Replace(w.url, "http", "ws", 1)+"/ws", &websocket.DialOptions{CompressionMode: websocket.CompressionContextTakeover})
	if err != nil {
		return nil, err
	}
	ws.SetReadLimit(1 << 20)
	l := &workerConn{w: w, ws: ws, frames: make(chan []byte, 100)}
	go func() {
		defer close(l.frames)
		for {
			_, raw, err := ws.Read(ctx)
			if err != nil {
				return
			}
			w.note("gateway", raw)
			l.frames <- raw
		}
	}()
	w.mu.Lock()
	w.conns++
	token := w.token
	w.mu.Unlock()
	auth := map[string]any{"type": "auth", "auth_type": "api_key", "api_key": w.key, "worker_id": w.id}
	if token != "" {
		auth = map[string]any{"type": "auth", "auth_type": "token", "token": token}
	}
	l.send(ctx, auth)
	m, err := l.recv(ctx)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	if m["status"] != "success" {
		w.refused = fmt.Errorf("auth: %v", m)
		w.mu.Unlock()
		return nil, w.refused
	}
	w.token, _ = m["token"].(string)
	w.id, _ = m["worker_id"].(string)
	w.mu.Unlock()
	l.send(ctx, map[string]any{"type": "register", "worker_id": w.id, "hostname": "vm", "capabilities": json.RawMessage(w.hw), "timestamp": 1715000000, "signature": strings.Repeat("A", 43) + "="})
	if m, err = l.recv(ctx); err != nil {
		return nil, err
	}
	if m["type"] != "register_response" {
		return nil, fmt.Errorf("register: %v", m)
	}
	return l, nil
}

func (l *workerConn) send(ctx context.Context, m map[string]any) {
	raw, err := json.Marshal(m)
	if err != nil {
		l.w.tb.Error(err)
		return
	}
	l.w.note("worker", raw)
	_ = l.ws.Write(ctx, websocket.MessageText, raw)
}

func (l *workerConn) recv(ctx context.Context) (map[string]any, error) {
	select {
	case raw, open := <-l.frames:
		if !open {
			return nil, errors.New("the connection is closed")
		}
		var m map[string]any
		return m, json.Unmarshal(raw, &m)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// expect reads the next message as the answer, whatever it is.
func (l *workerConn) expect(ctx context.Context, kind string) error {
	m, err := l.recv(ctx)
	if err == nil && m["type"] != kind {
		l.w.mu.Lock()
		l.w.lost = append(l.w.lost, fmt.Sprint(m["type"]))
		l.w.mu.Unlock()
	}
	return err
}

// run works until ctx ends or it is refused.
func (w *worker) run(ctx context.Context) error {
	for n := 1; ctx.Err() == nil; n++ {
		l, err := w.dial(ctx)
		if err != nil {
			select {
			case <-ctx.Done():
			case <-time.After(w.beat):
			}
			continue
		}
		w.mu.Lock()
		pending := w.pending
		w.pending = nil
		w.mu.Unlock()
		for _, r := range pending {
			l.send(ctx, r)
			_ = l.expect(ctx, "task_result_response")
		}
		w.listen(ctx, l, n == 1)
		_ = l.ws.Close(websocket.StatusNormalClosure, "")
		for range l.frames {
			_ = 0 // what had come is lost
		}
	}
	return nil
}

func (l *workerConn) heartbeat(ctx context.Context, task map[string]any) {
	m := map[string]any{
		"type": "heartbeat", "worker_id": l.w.id, "timestamp": 1715000000, "hardware_metrics": map[string]any{"cpu_percent": 1.5, "memory_percent": 3.0, "memory_used_gb": 0.39, "memory_available_gb": 22.84},
		"health_status": map[string]any{"is_healthy": true}, "signature": strings.Repeat("A", 43) + "=",
	}
	if task != nil {
		m["task_status"] = task
	}
	l.send(ctx, m)
}

// listen serves one connection. It ends with a heartbeat while no task runs.
func (w *worker) listen(ctx context.Context, l *workerConn, first bool) {
	if first || !w.defect {
		l.heartbeat(ctx, nil)
		if w.defect || l.expect(ctx, "heartbeat_response") != nil {
			return
		}
	}
	tick := time.NewTicker(w.beat)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			l.heartbeat(ctx, nil)
			if w.defect || l.expect(ctx, "heartbeat_response") != nil {
				return
			}
		case raw, open := <-l.frames:
			if !open {
				return
			}
			var m struct {
				Type  string     `json:"type"`
				Tasks []wireTask `json:"tasks"`
				wireTask
			}
			if err := json.Unmarshal(raw, &m); err != nil {
				w.tb.Errorf("a frame that cannot be read: %s", raw)
				return
			}
			switch m.Type {
			case "execute_task":
				m.Tasks = []wireTask{m.wireTask}
			case "execute_task_batch":
			default:
				continue
			}
			for i, t := range m.Tasks {
				if !w.execute(ctx, l, t, len(m.Tasks) > 1) {
					return
				}
				if t.TaskType == "test" && len(m.Tasks) > 1 && i == 0 {
					return // a coroutine is used twice
				}
			}
		}
	}
}

// execute runs a task, with heartbeats meanwhile, and reports it.
func (w *worker) execute(ctx context.Context, l *workerConn, t wireTask, batch bool) bool {
	w.mu.Lock()
	w.ran = append(w.ran, t.TaskID)
	w.mu.Unlock()
	end := time.NewTimer(w.work)
	defer end.Stop()
	tick := time.NewTicker(w.beat)
	defer tick.Stop()
	cut := false
	for done := false; !done; {
		select {
		case <-ctx.Done():
			return false
		case <-end.C:
			done = true
		case <-tick.C:
			if !cut {
				status := map[string]any{"task_id": t.TaskID, "status": "running", "progress": 57.14}
				if batch {
					status = nil
				}
				l.heartbeat(ctx, status)
				if l.expect(ctx, "heartbeat_response") != nil {
					cut = true // the task continues
				}
			}
		}
	}
	r := map[string]any{"type": "task_result", "worker_id": w.id, "task_id": t.TaskID, "status": "completed", "execution_time_seconds": w.work.Seconds(), "hardware_metrics": map[string]any{"cpu_percent": 1.0, "memory_percent": 3.0}, "timestamp": 1715000000}
	result, wrong := w.result(t)
	if wrong != "" {
		r["status"], r["error"] = "failed", wrong
	} else {
		r["result"] = result
	}
	if cut {
		w.mu.Lock()
		w.pending = append(w.pending, r)
		w.mu.Unlock()
		return false
	}
	l.send(ctx, r)
	return l.expect(ctx, "task_result_response") == nil
}

// result is what the real worker returns: everything but hash is invented.
func (w *worker) result(t wireTask) (map[string]any, string) {
	var c struct {
		Model      string `json:"model"`
		Name       string `json:"name"`
		Payload    string `json:"payload"`
		Data       string `json:"data"`
		TestFile   string `json:"test_file"`
		BatchSizes []int  `json:"batch_sizes"`
	}
	_ = json.Unmarshal(t.Config, &c)
	switch {
	case t.TaskType == "benchmark":
		sizes := map[string]any{}
		for _, n := range c.BatchSizes {
			sizes[strconv.Itoa(n)] = map[string]any{"latency_ms": 10 + 2*n, "throughput_items_per_second": 1000 / float64(10+2*n) * float64(n), "memory_mb": 1024 + 128*n}
		}
		return map[string]any{"model": c.Model, "precision": "fp32", "iterations": 10, "batch_sizes": sizes}, ""
	case t.TaskType == "test":
		return map[string]any{"test_file": c.TestFile, "success": true, "test_count": 10, "passed": 9, "failed": 1, "skipped": 0, "duration_seconds": 2.0}, ""
	case t.TaskType == "custom":
		return map[string]any{"name": c.Name, "success": true, "output": "Executed custom task " + c.Name}, ""
	case t.TaskType == "hash" && !w.old:
		if c.Payload == "" {
			c.Payload = c.Data
		}
		sum := sha256.Sum256([]byte(c.Payload))
		return map[string]any{"algorithm": "sha256", "digest": hex.EncodeToString(sum[:]), "length": len(c.Payload)}, ""
	}
	return nil, "Unknown task type: " + t.TaskType
}
