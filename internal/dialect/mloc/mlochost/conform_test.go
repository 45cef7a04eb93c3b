package mlochost_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dialect/dialecttest"
	"github.com/muster-dev/muster/internal/dialect/mloc/mlochost"
	"github.com/muster-dev/muster/internal/dialect/mloc/mloctest"
)

// TestConform holds that the gateway does what every gateway must.
func TestConform(t *testing.T) {
	t.Parallel()
	redis := mloctest.StartRedis(t)
	system := mlochost.System()
	system.New = newFast
	dialecttest.Conform(t, dialecttest.Suite{
		System: system, Options: map[string]string{"redis": redis.URL(), "watchdog_grace": "1"}, Task: muster.TaskSpec{Kind: "echo", Input: json.RawMessage(`{"a": 1}`)},
		Start: func(t *testing.T, url, id, _ string) dialecttest.Worker {
			t.Helper()
			s := newFakeWorker(t, redis, id)
			s.manual, s.ttl = make(chan message), time.Second
			s.register().listen()
			t.Cleanup(func() { s.sigint() }) // the next case begins with an empty database
			return &conformWorker{s, url}
		},
		Paths:        []string{"/api/v1/results", "/api/v1/results/x/files", "/api/v1/tasks", "/workers/one/elastic"},
		Capabilities: dialecttest.Capabilities{Message: true, DetectsLoss: true},
	})
}

// conformWorker is a scripted worker as the suite drives it.
type conformWorker struct {
	*fakeWorker

	url string
}

func (c *conformWorker) NextTask(ctx context.Context) (dialecttest.Assignment, error) {
	select {
	case m := <-c.manual:
		return &conformAssignment{c, m}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (c *conformWorker) Report(_ context.Context, task string) error {
	b, err := json.Marshal(map[string]any{"task_id": task, "worker_id": c.id, "result": map[string]any{"ok": true}})
	if err != nil {
		return err
	}
	status, answer := c.post(c.url+"/api/v1/results", "application/json", nil, b)
	c.event("tasks.events", map[string]any{"type": "TASK_SUCCEEDED", "task_id": task, "payload": map[string]any{}})
	if status >= 400 {
		return errors.New(answer)
	}
	return nil
}

func (c *conformWorker) Crash() { c.sigkill() }

type conformAssignment struct {
	c *conformWorker
	m message
}

func (w *conformAssignment) ID() string { return w.m.TaskID }

func (w *conformAssignment) Progress(context.Context, float64, string) error { return nil }

func (w *conformAssignment) Succeed(_ context.Context, word string) error {
	if reason := w.c.deliver(w.m.Task.Spec, w.m.TaskID, map[string]any{"ok": true, "echo": map[string]any{"input": word}}); reason != "" {
		return errors.New(reason)
	}
	w.c.event("tasks.events", map[string]any{"type": "TASK_SUCCEEDED", "task_id": w.m.TaskID, "payload": map[string]any{"runtime_sec": 0.1}})
	w.c.status("IDLE", w.m.TaskID)
	return nil
}

func (w *conformAssignment) Fail(_ context.Context, message string) error {
	w.c.event("tasks.events", map[string]any{"type": "TASK_FAILED", "task_id": w.m.TaskID, "error": strings.TrimSpace(message), "payload": map[string]any{}})
	w.c.status("IDLE", w.m.TaskID)
	return nil
}
