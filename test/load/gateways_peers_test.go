package load

import (
	"context"
	"encoding/json"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/redis/go-redis/v9"

	"github.com/muster-dev/muster/internal/mustertest"
)

// dtf is DTF's worker: its first heartbeat, and each later one after ten seconds, breaks the connection, and it reconnects.
func (p *fakeWorkers) dtf(ctx context.Context, id string) error {
	token := ""
	for first := true; ; first = false {
		if err := p.dtfSession(ctx, id, &token, first); err != nil {
			return err
		}
	}
}

// dtfMessage is what of the protocol's messages is used here.
type dtfMessage struct {
	Type   string `json:"type"`
	Token  string `json:"token"`
	TaskID string `json:"task_id"`
}

// dtfSession is one connection. Like DTF's worker, it treats any message as the expected response: a task is then lost until it is sent again.
func (p *fakeWorkers) dtfSession(ctx context.Context, id string, token *string, first bool) error {
	ws, resp, err := websocket.Dial(ctx, "ws"+strings.TrimPrefix(p.base, "http")+"/ws", nil)
	if err != nil {
		return err
	}
	if resp.Body != nil {
		_ = resp.Body.Close()
	}
	defer func() { _ = ws.CloseNow() }()
	s := &dtfSocket{ws: ws, frames: make(chan dtfMessage, 16)}
	var reading sync.WaitGroup
	defer reading.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	reading.Go(func() { s.read(ctx) })
	auth := map[string]any{"type": "auth", "auth_type": "api_key", "api_key": p.key, "worker_id": id}
	if *token != "" {
		auth = map[string]any{"type": "auth", "auth_type": "token", "token": *token}
	}
	got, err := s.ask(ctx, auth)
	switch {
	case err != nil:
		return err
	case got.Type != "auth_response" || got.Token == "":
		return errors.New("the gateway does not let the worker in")
	}
	*token = got.Token
	_, err = s.ask(ctx, map[string]any{
		"type": "register", "worker_id": id, "hostname": id, "timestamp": time.Now().Unix(), "signature": strings.Repeat("A", 43) + "=",
		"capabilities": map[string]any{
			"hostname": id, "platform": "Linux", "hardware": []string{"cpu"}, "cpu": map[string]any{"model": "x", "cores": 2, "threads": 2, "freq_mhz": 0.0},
			"memory": map[string]any{"total_gb": 8.0, "available_gb": 7.0},
		},
	})
	if err != nil {
		return err
	}
	beat := time.NewTimer(10 * time.Second)
	defer beat.Stop()
	if first {
		beat.Reset(0)
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-beat.C:
			_, err := s.ask(ctx, map[string]any{
				"type": "heartbeat", "worker_id": id, "timestamp": time.Now().Unix(), "health_status": map[string]any{"is_healthy": true},
				"hardware_metrics": map[string]any{"cpu_percent": 0.0, "memory_percent": 3.0, "memory_used_gb": 0.4, "memory_available_gb": 7.0},
			})
			return err
		case m, open := <-s.frames:
			if !open {
				return nil // it comes back
			}
			if m.Type != "execute_task" {
				continue
			}
			_, err := s.ask(ctx, map[string]any{
				"type": "task_result", "worker_id": id, "task_id": m.TaskID, "status": "completed", "execution_time_seconds": 0.01, "timestamp": time.Now().Unix(),
				"hardware_metrics": map[string]any{"cpu_percent": 0.0, "memory_percent": 3.0}, "signature": strings.Repeat("A", 43) + "=",
				"result": map[string]any{"algorithm": "sha256", "digest": "63d1d5ab1f7c7b0b6d0a9d2c7e3a", "length": 6},
			})
			if err != nil {
				return err
			}
			p.done.Add(1)
		}
	}
}

type dtfSocket struct {
	ws     *websocket.Conn
	frames chan dtfMessage
}

func (s *dtfSocket) read(ctx context.Context) {
	defer close(s.frames)
	for {
		_, raw, err := s.ws.Read(ctx)
		if err != nil {
			return
		}
		var m dtfMessage
		if json.Unmarshal(raw, &m) != nil {
			return
		}
		select {
		case s.frames <- m:
		case <-ctx.Done():
			return
		}
	}
}

// ask sends a message and returns the next received one.
func (s *dtfSocket) ask(ctx context.Context, m map[string]any) (dtfMessage, error) {
	b, err := json.Marshal(m)
	if err != nil {
		return dtfMessage{}, err
	}
	if err := s.ws.Write(ctx, websocket.MessageText, b); err != nil {
		return dtfMessage{}, err
	}
	select {
	case got := <-s.frames:
		return got, nil
	case <-ctx.Done():
		return dtfMessage{}, ctx.Err()
	}
}

// startRedis starts Debian's Redis, which keeps nothing.
func startRedis(b *testing.B) string {
	b.Helper()
	program, err := exec.LookPath("redis-server")
	if err != nil {
		b.Skip("redis-server is not installed")
	}
	_, port, _ := strings.Cut(mustertest.ReservePort(b), ":")
	cmd := exec.Command(program, "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", b.TempDir(),
		"--logfile", filepath.Join(b.TempDir(), "redis.log"))
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	url := "redis://127.0.0.1:" + port + "/0"
	c := mlocRedis(b, url)
	for began := time.Now(); c.Ping(b.Context()).Err() != nil; time.Sleep(50 * time.Millisecond) {
		if time.Since(began) > 10*time.Second {
			b.Fatal("Redis does not start")
		}
	}
	return url
}

func mlocRedis(tb testing.TB, url string) *redis.Client {
	tb.Helper()
	o, err := redis.ParseURL(url)
	if err != nil {
		tb.Fatal(err)
	}
	o.PoolSize = 16
	c := redis.NewClient(o)
	tb.Cleanup(func() { _ = c.Close() })
	return c
}

// mlocTask is what of a task message a worker reads.
type mlocTask struct {
	TaskID string `json:"task_id"`
	Worker string `json:"assigned_worker"`
	Task   struct {
		Spec struct {
			Output struct {
				Destination struct {
					URL     string            `json:"url"`
					Headers map[string]string `json:"headers"`
				} `json:"destination"`
			} `json:"output"`
		} `json:"spec"`
	} `json:"task"`
}

// mloc is MLOC's worker: a heartbeat every 30 seconds, tasks by a channel that all workers hear.
func (p *fakeWorkers) mloc(ctx context.Context, id string) error {
	o, err := redis.ParseURL(p.redis)
	if err != nil {
		return err
	}
	o.PoolSize, o.MinIdleConns = 2, 0
	c := redis.NewClient(o)
	defer func() { _ = c.Close() }()
	key := "worker:" + id
	now := func() string { return time.Now().UTC().Format("2006-01-02T15:04:05.000000+00:00") }
	publish := func(channel string, m map[string]any) error {
		b, err := json.Marshal(m)
		if err != nil {
			return err
		}
		return c.Publish(ctx, channel, b).Err()
	}
	status := func(s string, more ...any) error {
		if err := c.HSet(ctx, key, append([]any{"status", s, "last_seen", now()}, more...)...).Err(); err != nil {
			return err
		}
		return publish("workers.events", map[string]any{"type": "STATUS", "worker_id": id, "status": s, "ts": now(), "payload": map[string]any{}})
	}
	const hardware = `{"cpu":{"logical_cores":2,"model":"x86_64"},"memory":{"total_bytes":8589934592},"gpu":{"driver_version":null,"cuda_version":null,"gpus":[]},"network":{"ip":"127.0.0.1"}}`
	sub := c.Subscribe(ctx, "tasks")
	defer func() { _ = sub.Close() }()
	if _, err := sub.Receive(ctx); err != nil {
		return err
	}
	if err := c.SAdd(ctx, "workers:ids", id).Err(); err != nil {
		return err
	}
	err = c.HSet(ctx, key, "worker_id", id, "status", "STARTING", "started_at", now(), "last_seen", now(), "pid", "1", "env_json", "{}", "hardware_json", hardware,
		"tags_json", "[]", "cost_per_hour", "1.0").Err()
	if err != nil {
		return err
	}
	err = publish("workers.events", map[string]any{
		"type": "REGISTER", "worker_id": id, "status": "STARTING", "tags": []string{}, "ts": now(), "payload": map[string]any{"env": map[string]any{}, "hardware": json.RawMessage(hardware), "cost_per_hour": 1.0},
	})
	if err != nil {
		return err
	}
	beat := func() error {
		if err := c.Set(ctx, key+":hb", now(), 120*time.Second).Err(); err != nil {
			return err
		}
		if err := c.HSet(ctx, key, "last_seen", now()).Err(); err != nil {
			return err
		}
		return publish("workers.events", map[string]any{"type": "HEARTBEAT", "worker_id": id, "ts": now(), "metrics": map[string]any{"uptime_sec": 1.0}})
	}
	if err := beat(); err != nil {
		return err
	}
	if err := status("IDLE"); err != nil {
		return err
	}
	tick := time.NewTicker(30 * time.Second)
	defer tick.Stop()
	assignedToMe := `"assigned_worker":"` + id + `"`
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
			if err := beat(); err != nil {
				return err
			}
		case m, ok := <-sub.Channel():
			if !ok {
				return errors.New("the subscription ended")
			}
			if !strings.Contains(m.Payload, assignedToMe) {
				continue
			}
			var t mlocTask
			if err := json.Unmarshal([]byte(m.Payload), &t); err != nil {
				return err
			}
			if err := status("RUNNING", "extra_task_id", t.TaskID); err != nil {
				return err
			}
			payload := map[string]any{"taskType": "echo", "runtime_sec": 0.01, "started_at": now()}
			event := func(kind string) error {
				return publish("tasks.events", map[string]any{"type": kind, "ts": now(), "worker_id": id, "task_id": t.TaskID, "payload": payload})
			}
			if err := event("TASK_STARTED"); err != nil {
				return err
			}
			d := t.Task.Spec.Output.Destination
			result := map[string]any{"task_id": t.TaskID, "worker_id": id, "result": map[string]any{"ok": true, "echo": map[string]any{"taskType": "echo", "message": "hello"}}}
			if err := p.postResult(ctx, d.URL, d.Headers, result); err != nil {
				return err
			}
			if err := event("TASK_SUCCEEDED"); err != nil {
				return err
			}
			if err := status("IDLE", "extra_last_task", t.TaskID); err != nil {
				return err
			}
			p.done.Add(1)
		}
	}
}
