package mlocbridge

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/muster-dev/muster/internal/dialect/mloc/mloctest"
	"github.com/muster-dev/muster/internal/testkit"
)

// host is a scripted host of MLOC, written from contracts.md section 4 alone: registrations and events over Redis, tasks
// only for workers that are exactly IDLE, no acknowledgement, a watchdog, a store of results over HTTP, and FLUSHDB at its
// end.
type host struct {
	tb    testing.TB
	redis *mloctest.Redis
	rdb   *redis.Client
	http  *httptest.Server
	token string // ORCHESTRATOR_TOKEN

	mu           sync.Mutex
	tasks        map[string]*hostTask
	results      map[string]map[string]any
	files        map[string]map[string]string
	script       []string // what came, in order, for the transcript
	refuse       int      // the status for results, 0 to take them
	dropMessages bool     // events are not heard: their messages are lost
	headers      []http.Header
	cancel       context.CancelFunc
	done         sync.WaitGroup
}

// hostTask is a task of the host.
type hostTask struct {
	id, status, worker, err string
	started, finals         int
	merged                  []string
	message                 map[string]any
	dispatched              time.Time
}

func startHost(tb testing.TB, r *mloctest.Redis) *host {
	tb.Helper()
	h := &host{tb: tb, redis: r, rdb: r.Client(), tasks: map[string]*hostTask{}, results: map[string]map[string]any{}, files: map[string]map[string]string{}}
	h.http = httptest.NewServer(h.routes())
	tb.Cleanup(func() { h.http.Close(); h.stopListening(); h.rdb.Close() })
	h.listen()
	return h
}

// listen subscribes to both channels of events, again after Redis was away.
func (h *host) listen() {
	ctx, cancel := context.WithCancel(context.Background())
	h.cancel = cancel
	ready := make(chan bool, 1)
	h.done.Go(func() {
		for ctx.Err() == nil {
			sub := h.rdb.Subscribe(ctx, "tasks.events", "workers.events")
			stop := context.AfterFunc(ctx, func() { _ = sub.Close() })
			if _, err := sub.Receive(ctx); err == nil {
				select {
				case ready <- true:
				default:
				}
				for {
					m, err := sub.ReceiveMessage(ctx)
					if err != nil {
						break
					}
					h.event(m.Channel, m.Payload)
				}
			}
			stop()
			_ = sub.Close()
			time.Sleep(10 * time.Millisecond)
		}
	})
	<-ready
}

// stopListening ends the host's subscription, as a host that is killed.
func (h *host) stopListening() { h.cancel(); h.done.Wait() }

func (h *host) event(channel, payload string) {
	var e map[string]any
	if json.Unmarshal([]byte(payload), &e) != nil {
		return
	}
	kind, _ := e["type"].(string)
	kind = strings.ToUpper(kind)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.dropMessages {
		return
	}
	if kind != "HEARTBEAT" {
		h.script = append(h.script, channel+" "+shape(e))
	}
	if kind == "UNREGISTER" {
		for _, t := range h.tasks {
			if t.worker == e["worker_id"] && t.status == "DISPATCHED" {
				t.status, t.worker = "PENDING", ""
			}
		}
	}
	id, _ := e["task_id"].(string)
	t := h.tasks[id]
	if !strings.HasPrefix(kind, "TASK") || t == nil {
		return
	}
	switch kind {
	case "TASK_STARTED":
		t.started++
	case "TASK_SUCCEEDED":
		t.finals++
		t.status = "DONE"
		for _, c := range t.merged {
			h.tasks[c].status = "DONE"
		}
	case "TASK_FAILED":
		t.finals++
		t.status = "FAILED"
		t.err, _ = e["error"].(string)
		for _, c := range t.merged {
			h.tasks[c].status = "PENDING"
		}
	}
}

func (h *host) routes() http.Handler {
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, status int, v any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(v)
	}
	authorized := func(w http.ResponseWriter, r *http.Request) bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.headers = append(h.headers, r.Header.Clone())
		if h.token == "" || r.Header.Get("Authorization") == "Bearer "+h.token {
			return true
		}
		answer(w, 401, map[string]any{"detail": "Missing bearer token"})
		return false
	}
	mux.HandleFunc("POST /api/v1/results", func(w http.ResponseWriter, r *http.Request) {
		if !authorized(w, r) {
			return
		}
		var d struct {
			TaskID   string         `json:"task_id"`
			Result   map[string]any `json:"result"`
			WorkerID string         `json:"worker_id"`
		}
		if err := json.NewDecoder(r.Body).Decode(&d); err != nil || d.TaskID == "" || d.Result == nil {
			answer(w, 422, map[string]any{"detail": "no result"})
			return
		}
		h.awaitStarted(d.TaskID)
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.refuse != 0 {
			w.WriteHeader(h.refuse)
			_, _ = io.WriteString(w, "not today")
			return
		}
		h.script = append(h.script, "POST /api/v1/results "+strings.TrimPrefix(d.TaskID, "task-")+" of "+d.WorkerID)
		h.results[d.TaskID] = d.Result
		answer(w, 200, map[string]any{"ok": true, "path": "results/" + d.TaskID})
	})
	mux.HandleFunc("POST /api/v1/results/{id}/files", func(w http.ResponseWriter, r *http.Request) {
		if !authorized(w, r) {
			return
		}
		f, head, err := r.FormFile("file")
		if err != nil {
			answer(w, 422, map[string]any{"detail": "no file"})
			return
		}
		data, _ := io.ReadAll(f)
		h.mu.Lock()
		defer h.mu.Unlock()
		id := r.PathValue("id")
		if h.files[id] == nil {
			h.files[id] = map[string]string{}
		}
		h.files[id][head.Filename] = string(data)
		h.script = append(h.script, "POST files "+head.Filename+" "+head.Header.Get("Content-Type"))
		answer(w, 200, map[string]any{"ok": true, "path": head.Filename})
	})
	mux.HandleFunc("GET /api/v1/results/{id}/files/{name}", func(w http.ResponseWriter, r *http.Request) {
		h.mu.Lock()
		defer h.mu.Unlock()
		data, ok := h.files[r.PathValue("id")][r.PathValue("name")]
		if !ok {
			answer(w, 404, map[string]any{"detail": "artifact not found"})
			return
		}
		_, _ = io.WriteString(w, data)
	})
	mux.HandleFunc("GET /api/v1/tasks/{id}", func(w http.ResponseWriter, r *http.Request) {
		if !authorized(w, r) {
			return
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		t := h.tasks[r.PathValue("id")]
		if t == nil {
			answer(w, 404, map[string]any{"detail": "task not found"})
			return
		}
		var worker any
		if t.worker != "" {
			worker = t.worker
		}
		answer(w, 200, map[string]any{"task_id": t.id, "status": t.status, "assigned_worker": worker, "attempts": 0})
	})
	return mux
}

// awaitStarted waits a moment for the events before a result, which come another way than it: the transcript has them in
// the order in which they were sent.
func (h *host) awaitStarted(id string) {
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		h.mu.Lock()
		t := h.tasks[id]
		heard := t == nil || t.started > 0 || h.dropMessages
		h.mu.Unlock()
		if heard {
			return
		}
	}
}

// results is the address of the store of results.
func (h *host) store() string { return h.http.URL + "/api/v1/results" }

// document makes the document of a task that delivers over HTTP.
func (h *host) document(taskType string, more map[string]any) map[string]any {
	spec := map[string]any{"taskType": taskType, "output": map[string]any{"destination": map[string]any{"type": "http", "url": h.store()}}}
	maps.Copy(spec, more)
	return map[string]any{"apiVersion": "mloc/v1", "kind": "Task", "metadata": map[string]any{"name": "a task"}, "spec": spec}
}

// dispatch waits for a worker that is exactly IDLE, and gives it a task as the host does.
func (h *host) dispatch(worker, id string, doc map[string]any, children ...map[string]any) *hostTask {
	h.tb.Helper()
	ctx := h.tb.Context()
	testkit.Await(h.tb, "worker "+worker+" is IDLE", func() bool {
		in, _ := h.rdb.SIsMember(ctx, "workers:ids", worker).Result()
		ttl, _ := h.rdb.TTL(ctx, "worker:"+worker+":hb").Result()
		return in && ttl > 0 && h.rdb.HGet(ctx, "worker:"+worker, "status").Val() == "IDLE"
	})
	message := map[string]any{"task_id": id, "task": doc, "task_type": "x", "assigned_worker": worker, "dispatched_at": time.Now().UTC().Format("2006-01-02T15:04:05.000000+00:00"), "parent_task_id": nil}
	t := &hostTask{id: id, status: "DISPATCHED", worker: worker, message: message}
	h.mu.Lock()
	for _, c := range children {
		cid, _ := c["task_id"].(string)
		t.merged = append(t.merged, cid)
		h.tasks[cid] = &hostTask{id: cid, status: "DISPATCHED", worker: worker}
	}
	h.tasks[id] = t
	h.mu.Unlock()
	if len(children) > 0 {
		message["merged_children"] = children
	}
	if h.publish("tasks", message) == 0 {
		h.tb.Fatal("there are no subscribers to tasks")
	}
	h.rdb.HSet(ctx, "worker:"+worker, "status", "RUNNING")
	return t
}

func (h *host) publish(channel string, v any) int64 {
	h.tb.Helper()
	b, ok := v.([]byte)
	if !ok {
		b, _ = json.Marshal(v)
	}
	n, err := h.rdb.Publish(h.tb.Context(), channel, b).Result()
	if err != nil {
		h.tb.Fatal(err)
	}
	return n
}

// waitEnded waits for the final event of a task, and returns its state.
func (h *host) waitEnded(t *hostTask) string {
	h.tb.Helper()
	testkit.Await(h.tb, "task "+t.id+" ends", func() bool { return h.snapshot(t).finals > 0 })
	return h.snapshot(t).status
}

func (h *host) snapshot(t *hostTask) hostTask {
	h.mu.Lock()
	defer h.mu.Unlock()
	return *t
}

func (h *host) result(id string) map[string]any {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.results[id]
}

// transcript is what came so far.
func (h *host) transcript() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.script)
}

// shape writes an event without what differs each time.
func shape(e map[string]any) string {
	var clean func(key string, v any) any
	clean = func(key string, v any) any {
		switch x := v.(type) {
		case map[string]any:
			out := map[string]any{}
			for k, b := range x {
				out[k] = clean(k, b)
			}
			if key == "hardware" || key == "power_summary" || key == "power_metrics" {
				return strconv.FormatBool(len(out) > 0)
			}
			return out
		case float64:
			return "number"
		case string:
			if key == "ts" || strings.HasSuffix(key, "_at") {
				if _, err := time.Parse("2006-01-02T15:04:05.000000+00:00", x); err == nil {
					return "ts-utc"
				}
			}
			return x
		default:
			return v
		}
	}
	b, _ := json.Marshal(clean("", e))
	return string(b)
}

func newTask() string { return "task-" + rand.Text() }
