package mlochost_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/muster-dev/muster/internal/dialect/mloc/mloctest"
)

// fakeWorker is a worker of MLOC as section 4 of the contracts describes it, with its quirks: it registers once and never again, it may say that it is idle
// before it listens, it runs messages one by one, it leaves everything behind when it is killed.
type fakeWorker struct {
	tb      testing.TB
	id      string
	r       *redis.Client
	ctx     context.Context // also while a test is cleaned up
	started string
	execute func(m message) (result map[string]any, files map[string]string, failure string)

	mu       sync.Mutex
	messages []message // that it ran
	answers  []string  // of the host to what it posted
	kill     context.CancelFunc
	done     chan struct{}
	sub      *redis.PubSub
	hardware string
	tags     string
	silent   bool          // it says nothing of tasks: as if its news were lost
	stuck    bool          // nor that it is idle again
	manual   chan message  // if set, tasks are ended by the test
	ttl      time.Duration // of the heartbeat's key
}

// message is what a worker reads of a message.
type message struct {
	TaskID   string `json:"task_id"`
	Assigned string `json:"assigned_worker"`
	Task     struct {
		Spec map[string]any `json:"spec"`
	} `json:"task"`
	Children []struct {
		TaskID string         `json:"task_id"`
		Spec   map[string]any `json:"spec"`
	} `json:"merged_children"`
	raw string
}

func echo(m message) (map[string]any, map[string]string, string) {
	return map[string]any{"ok": true, "echo": m.Task.Spec}, nil, ""
}

const hardwareOfTests = `{"cpu":{"logical_cores":2,"model":"x86_64"},"memory":{"total_bytes":25276502016},"gpu":{"driver_version":null,"cuda_version":null,"gpus":[]},"network":{"ip":"10.0.0.1","bandwidth_bytes_per_sec":1000.0}}`

func newFakeWorker(tb testing.TB, redis *mloctest.Redis, id string) *fakeWorker {
	tb.Helper()
	s := &fakeWorker{tb: tb, id: id, r: redis.Client(), ctx: context.WithoutCancel(tb.Context()), execute: echo, hardware: hardwareOfTests, tags: `["cpu"]`, started: timestamp(), ttl: 3 * time.Second}
	tb.Cleanup(func() { s.sigkill(); _ = s.r.Close() })
	return s
}

func timestamp() string { return time.Now().UTC().Format("2006-01-02T15:04:05.000000+00:00") }

func (s *fakeWorker) event(channel string, e map[string]any) {
	e["ts"], e["worker_id"] = timestamp(), s.id
	b, _ := json.Marshal(e)
	s.r.Publish(s.ctx, channel, b)
}

// register does steps 1 to 4 of a session: everything but listening.
func (s *fakeWorker) register() *fakeWorker {
	ctx := s.ctx
	_, err := s.r.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.SAdd(ctx, "workers:ids", s.id)
		p.HSet(ctx, "worker:"+s.id, "worker_id", s.id, "status", "STARTING", "started_at", s.started, "last_seen", timestamp(), "pid", "20936", "env_json", "{}",
			"hardware_json", s.hardware, "tags_json", s.tags, "cost_per_hour", "1.0")
		b, _ := json.Marshal(map[string]any{"type": "REGISTER", "ts": timestamp(), "worker_id": s.id, "status": "STARTING", "tags": []string{"cpu"}, "payload": map[string]any{"cost_per_hour": 1.0}})
		p.Publish(ctx, "workers.events", b)
		return nil
	})
	if err != nil {
		s.tb.Fatal(err)
	}
	s.status("IDLE", "")
	s.heartbeat()
	return s
}

func (s *fakeWorker) status(status, task string) {
	ctx := s.ctx
	values, payload := []any{"status", status, "last_seen", timestamp()}, map[string]any{}
	if task != "" {
		field, name := "extra_task_id", "task_id"
		if status == "IDLE" {
			field, name = "extra_last_task", "last_task"
		}
		values, payload[name] = append(values, field, task), task
	}
	s.r.HSet(ctx, "worker:"+s.id, values...)
	s.event("workers.events", map[string]any{"type": "STATUS", "status": status, "payload": payload})
}

func (s *fakeWorker) heartbeat() {
	ctx := s.ctx
	s.r.Set(ctx, "worker:"+s.id+":hb", timestamp(), s.ttl)
	s.r.HSet(ctx, "worker:"+s.id, "last_seen", timestamp())
	s.event("workers.events", map[string]any{"type": "HEARTBEAT", "metrics": map[string]any{"uptime_sec": 1.5, "accrued_cost_usd": 0.25, "loadavg": map[string]any{"1m": 1.0, "5m": 0.5, "15m": 0.1}}})
}

// listen does the rest of a session, until it is killed.
func (s *fakeWorker) listen() *fakeWorker {
	ctx, cancel := context.WithCancel(s.ctx)
	s.kill, s.done = cancel, make(chan struct{})
	s.sub = s.r.Subscribe(ctx, "tasks")
	if _, err := s.sub.Receive(ctx); err != nil {
		s.tb.Fatal(err)
	}
	var both sync.WaitGroup
	both.Go(func() {
		for ctx.Err() == nil {
			m, err := s.sub.ReceiveMessage(ctx)
			if err != nil {
				if ctx.Err() == nil {
					time.Sleep(10 * time.Millisecond)
				}
				continue
			}
			s.run(ctx, m.Payload)
		}
	})
	both.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(200 * time.Millisecond):
				s.heartbeat()
			}
		}
	})
	go func() { both.Wait(); close(s.done) }()
	return s
}

// sigkill ends it; its keys stay.
func (s *fakeWorker) sigkill() {
	if s.kill != nil {
		s.kill()
		_ = s.sub.Close()
		<-s.done
		s.kill = nil
	}
}

// sigint ends it in order.
func (s *fakeWorker) sigint() {
	s.sigkill()
	ctx := s.ctx
	s.r.SRem(ctx, "workers:ids", s.id)
	s.r.Del(ctx, "worker:"+s.id, "worker:"+s.id+":hb")
	s.event("workers.events", map[string]any{"type": "UNREGISTER", "payload": map[string]any{"cost_per_hour": 1.0}})
}

// run carries out one message.
func (s *fakeWorker) run(ctx context.Context, payload string) {
	m := message{raw: payload}
	if json.Unmarshal([]byte(payload), &m) != nil || m.Assigned != s.id {
		return
	}
	s.mu.Lock()
	s.messages = append(s.messages, m)
	silent, execute := s.silent, s.execute
	s.mu.Unlock()
	s.status("RUNNING", m.TaskID)
	began := time.Now()
	if !silent {
		s.event("tasks.events", map[string]any{"type": "TASK_STARTED", "task_id": m.TaskID, "status": nil, "error": nil, "payload": map[string]any{"taskType": m.Task.Spec["taskType"], "started_at": timestamp()}})
	}
	if s.manual != nil {
		select {
		case s.manual <- m:
		case <-ctx.Done():
		}
		return
	}
	result, files, failure := execute(m)
	if ctx.Err() != nil {
		return // it was killed
	}
	if failure == "" {
		for name, content := range files {
			if url := s.upload(m, name, content); url != "" {
				result["final_model_archive_url"] = url
			}
		}
		failure = s.deliver(m.Task.Spec, m.TaskID, result)
		children, _ := result["children"].(map[string]any)
		for _, c := range m.Children {
			if one, ok := children[c.TaskID].(map[string]any); ok && failure == "" {
				failure = s.deliver(c.Spec, c.TaskID, one)
			}
		}
	}
	payloadOut := map[string]any{"taskType": m.Task.Spec["taskType"], "runtime_sec": time.Since(began).Seconds(), "finished_at": timestamp()}
	if !silent {
		if failure == "" {
			s.event("tasks.events", map[string]any{"type": "TASK_SUCCEEDED", "task_id": m.TaskID, "status": nil, "error": nil, "payload": payloadOut})
		} else {
			s.event("tasks.events", map[string]any{"type": "TASK_FAILED", "task_id": m.TaskID, "status": nil, "error": failure, "payload": payloadOut})
		}
	}
	if !s.stuck {
		s.status("IDLE", m.TaskID)
	}
}

func destinationOf(spec map[string]any) (url string, headers map[string]any) {
	out, _ := spec["output"].(map[string]any)
	d, _ := out["destination"].(map[string]any)
	if d["type"] != "http" {
		return "", nil
	}
	headers, _ = d["headers"].(map[string]any)
	url, _ = d["url"].(string)
	return url, headers
}

// deliver posts a result as the task says, and returns why that failed.
func (s *fakeWorker) deliver(spec map[string]any, id string, result map[string]any) string {
	url, headers := destinationOf(spec)
	if url == "" {
		return ""
	}
	b, _ := json.Marshal(map[string]any{"task_id": id, "result": result, "worker_id": s.id})
	status, answer := s.post(url, "application/json", headers, b)
	if status >= 400 || status == 0 {
		return fmt.Sprintf("HTTP delivery for task %s returned status %d: %s", id, status, answer)
	}
	return ""
}

func (s *fakeWorker) post(url, kind string, headers map[string]any, body []byte) (int, string) {
	req, err := http.NewRequest(http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}
	for k, v := range headers {
		req.Header.Set(k, fmt.Sprint(v))
	}
	req.Header.Set("Content-Type", kind)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = resp.Body.Close() }()
	b, _ := io.ReadAll(resp.Body)
	s.mu.Lock()
	s.answers = append(s.answers, string(b))
	s.mu.Unlock()
	return resp.StatusCode, string(b)
}

// upload posts an archive, declared as a zip although it is not, and returns its address.
func (s *fakeWorker) upload(m message, name, content string) string {
	url, headers := destinationOf(m.Task.Spec)
	var b bytes.Buffer
	form := multipart.NewWriter(&b)
	part, _ := form.CreatePart(textproto.MIMEHeader{"Content-Disposition": {`form-data; name="file"; filename="` + name + `"`}, "Content-Type": {"application/zip"}})
	_, _ = io.WriteString(part, content)
	_ = form.Close()
	if status, _ := s.post(url+"/"+m.TaskID+"/files", form.FormDataContentType(), headers, b.Bytes()); status != http.StatusOK {
		return ""
	}
	return url + "/" + m.TaskID + "/files/" + name
}

// ran returns the messages that it ran.
func (s *fakeWorker) ran() []message {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]message(nil), s.messages...)
}
