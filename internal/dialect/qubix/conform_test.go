package qubix_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dialect"
	"github.com/muster-dev/muster/internal/dialect/dialecttest"
	"github.com/muster-dev/muster/internal/dialect/qubix"
	"github.com/muster-dev/muster/internal/testkit"
)

func TestConform(t *testing.T) {
	t.Parallel()
	dialecttest.Conform(t, dialecttest.Suite{
		System:  qubix.System(),
		Options: map[string]string{"silence": "1s", "busy": "1s"},
		Task:    script("print(1)"),
		Start: func(t *testing.T, url, id, key string) dialecttest.Worker {
			t.Helper()
			if key != "" {
				url += "/k/" + key
			}
			ctx, cancel := context.WithCancel(context.Background())
			w := &conformWorker{base: url, id: id, ctx: ctx, cancel: cancel}
			t.Cleanup(func() {
				cancel()
				w.beats.Wait()
			})
			w.join() // before another one of the same id takes a job: a program that registers has just begun
			return w
		},
		Paths:        []string{"/api/providers/register", "/api/providers/quick-register", "/api/jobs/x/progress", "/api/jobs/x/complete"},
		Capabilities: dialecttest.Capabilities{Progress: true, Log: true, Message: true, Keys: true, DetectsLoss: true},
	})
}

// conformWorker is an enhanced worker whose requests return errors.
type conformWorker struct {
	base, id string
	refused  error           // its registration was
	ctx      context.Context // ends with the worker
	cancel   func()
	beats    sync.WaitGroup
}

func (w *conformWorker) join() {
	reg := map[string]any{"worker_id": w.id, "name": w.id, "specs": map[string]any{"cpu_cores": 2, "ram_total_gb": 8.0}, "pricePerHour": 5.0}
	if w.refused = w.send(w.ctx, http.MethodPost, "/api/providers/register", reg, nil); w.refused == nil {
		w.beats.Go(w.heartbeatLoop)
	}
}

// heartbeatLoop sends heartbeats without accepting jobs until the worker crashes.
func (w *conformWorker) heartbeatLoop() {
	beat := map[string]any{"workerId": w.id, "usage": map[string]any{"cpuPercent": 1.0}, "status": "busy", "currentJob": "another"}
	for w.ctx.Err() == nil {
		_ = w.send(w.ctx, http.MethodPost, "/api/providers/"+w.id+"/heartbeat", beat, nil) // the next one may get through
		select {
		case <-time.After(200 * time.Millisecond):
		case <-w.ctx.Done():
		}
	}
}

func (w *conformWorker) Crash() { w.cancel() }

// send makes one request. While the server restarts there is no response: then the request is repeated.
func (w *conformWorker) send(ctx context.Context, method, path string, body, into any) error {
	for {
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		req, err := http.NewRequestWithContext(ctx, method, w.base+path, bytes.NewReader(text))
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			select {
			case <-time.After(10 * time.Millisecond):
				continue
			case <-ctx.Done():
				return ctx.Err()
			case <-w.ctx.Done():
				return w.ctx.Err()
			}
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%s %s is answered with %d", method, path, resp.StatusCode)
		}
		if into == nil {
			return nil
		}
		return json.NewDecoder(resp.Body).Decode(into)
	}
}

func (w *conformWorker) NextTask(ctx context.Context) (dialecttest.Assignment, error) {
	if w.refused != nil {
		return nil, w.refused
	}
	beat := map[string]any{"workerId": w.id, "usage": map[string]any{"cpuPercent": 1.0}, "status": "online", "currentJob": nil}
	for {
		if err := w.send(ctx, http.MethodPost, "/api/providers/"+w.id+"/heartbeat", beat, nil); err != nil {
			return nil, err
		}
		var list []struct{ ID string }
		if err := w.send(ctx, http.MethodGet, "/api/jobs/pending/"+w.id, nil, &list); err != nil {
			return nil, err
		}
		if len(list) > 0 {
			work := &conformAssignment{w, list[0].ID}
			return work, work.Progress(ctx, 0.01, "begin")
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-w.ctx.Done():
			return nil, errors.New("the worker has left")
		}
	}
}

func (w *conformWorker) Report(ctx context.Context, task string) error {
	return (&conformAssignment{w, task}).Succeed(ctx, "late")
}

type conformAssignment struct {
	w  *conformWorker
	id string
}

func (k *conformAssignment) ID() string { return k.id }

func (k *conformAssignment) Progress(ctx context.Context, fraction float64, line string) error {
	return k.w.send(ctx, http.MethodPost, "/api/jobs/"+k.id+"/progress", map[string]any{"workerId": k.w.id, "progress": fraction * 100, "logLines": []string{line}}, nil)
}

func (k *conformAssignment) Succeed(ctx context.Context, word string) error {
	return k.w.send(ctx, http.MethodPost, "/api/jobs/"+k.id+"/complete", map[string]any{"workerId": k.w.id, "status": "completed", "result": map[string]any{"word": word}}, nil)
}

func (k *conformAssignment) Fail(ctx context.Context, message string) error {
	return k.w.send(ctx, http.MethodPost, "/api/jobs/"+k.id+"/complete", map[string]any{"workerId": k.w.id, "status": "failed", "error": message}, nil)
}

// An idle worker without requests is unreachable until its next request; a worker that runs a job is not.
func TestSilentWorker(t *testing.T) {
	t.Parallel()
	w := newEnv(t, func(c *dialect.Config) { c.Options["silence"] = "1s" })
	enhanced := newEnhanced(w.newClient(), machine)
	enhanced.register()
	enhanced.heartbeat()
	testkit.Await(t, "it is unreachable", func() bool { return w.foreignWorker("Provider-7504b437").State == muster.WorkerUnreachable })
	enhanced.heartbeat()
	testkit.Await(t, "it is back", func() bool { enhanced.poll(); return w.foreignWorker("Provider-7504b437").State == muster.WorkerActive })
	id := w.submit(script("print(1)"))
	job := field(enhanced.runJob(), "id")
	enhanced.progress(job, 10, "")
	w.waitState(id, muster.Running)
	time.Sleep(1500 * time.Millisecond) // longer than an idle one may be silent
	if state := w.foreignWorker("Provider-7504b437").State; state != muster.WorkerActive {
		t.Errorf("while it runs a job it is %s", state)
	}
	enhanced.complete(job, "completed", map[string]any{"status": "success", "exitCode": 0}, nil, nil)
	w.waitState(id, muster.Succeeded)
}
