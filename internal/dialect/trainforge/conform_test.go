package trainforge_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dialect"
	"github.com/muster-dev/muster/internal/dialect/dialecttest"
	"github.com/muster-dev/muster/internal/dialect/trainforge"
)

// suite is what all three workers have in common.
func suite(t *testing.T) (dialecttest.Suite, string) {
	t.Helper()
	shared := t.TempDir()
	system := trainforge.System()
	system.New = func(ctx context.Context, deps dialect.Deps) (dialect.Gateway, error) {
		return trainforge.OpenWith(ctx, deps, trainforge.Timeouts{})
	}
	return dialecttest.Suite{
		System: system, Options: map[string]string{"projects": shared},
		Task:         muster.TaskSpec{Kind: muster.KindProcess, Run: &muster.Command{Shell: "true"}},
		Capabilities: dialecttest.Capabilities{Progress: true, Log: true, Message: true, Keys: true},
	}, shared
}

// conformClient speaks for a worker whose work the test does.
type conformClient struct {
	fakeClient

	ctx  context.Context
	stop context.CancelFunc
}

func newConformClient(t *testing.T, base, key string) conformClient {
	t.Helper()
	if key != "" {
		base += "/k/" + key
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	return conformClient{fakeClient{t: t, base: base}, ctx, cancel}
}

// must sends a request whose answer must be 200.
func (c *conformClient) must(ctx context.Context, method, path string, body, into any) error {
	status, err := c.try(ctx, method, path, body, into)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("%s %s is answered with %d", method, path, status)
	}
	return err
}

func (c *conformClient) Crash() { c.stop() }

// retryUntil repeats take until it has something.
func retryUntil(ctx, crashed context.Context, next func() (dialecttest.Assignment, error)) (dialecttest.Assignment, error) {
	for {
		work, err := next()
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case crashed.Err() != nil:
			return nil, crashed.Err()
		case err != nil || work != nil:
			return work, err
		}
		pause(ctx)
	}
}

func endLine(word string) string {
	b, _ := json.Marshal(word)
	return `::trainforge {"end":true,"exit_code":0,"result":` + string(b) + `}`
}

type nodeWorker struct {
	conformClient

	id, shared string
	mu         sync.Mutex
	taken      map[string]bool
	joined     bool
}

func (n *nodeWorker) NextTask(ctx context.Context) (dialecttest.Assignment, error) {
	n.mu.Lock()
	joined := n.joined
	n.joined = true
	n.mu.Unlock()
	if !joined {
		if err := n.must(ctx, "POST", "/api/workers/register", dict{"worker_info": dict{"worker_id": n.id, "hostname": "vm", "platform": "linux", "cpu_count": 2, "memory_total_gb": 8.0, "gpus": mockGPUs()}}, nil); err != nil {
			return nil, err
		}
	}
	return retryUntil(ctx, n.ctx, func() (dialecttest.Assignment, error) {
		var answer struct {
			Jobs []struct {
				ID string `json:"job_id"`
			} `json:"jobs"`
		}
		_ = n.must(ctx, "GET", "/api/workers/jobs?worker_id="+url.QueryEscape(n.id), nil, &answer) // next turn
		for _, j := range answer.Jobs {
			if !n.taken[j.ID] {
				n.taken[j.ID] = true
				return &nodeAssignment{n, j.ID}, n.report(ctx, j.ID, "running")
			}
		}
		return nil, nil
	})
}

func (n *nodeWorker) report(ctx context.Context, id, status string) error {
	return n.must(ctx, "POST", "/api/workers/job-status", dict{"worker_id": n.id, "job_id": id, "status": status, "timestamp": 1.5}, nil)
}

func (n *nodeWorker) Report(ctx context.Context, task string) error {
	return n.report(ctx, task, "completed")
}

type nodeAssignment struct {
	n  *nodeWorker
	id string
}

func (w *nodeAssignment) ID() string { return w.id }

// print does what the runner does.
func (w *nodeAssignment) print(lines ...string) error {
	f, err := os.OpenFile(filepath.Join(w.n.shared, w.id, ".trainforge", "output.log"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	for _, l := range lines {
		_, err = fmt.Fprintln(f, l)
	}
	return errors.Join(err, f.Close())
}

func (w *nodeAssignment) alive(context.Context) error { return w.print(`::trainforge {"alive":true}`) }

func (w *nodeAssignment) Progress(_ context.Context, fraction float64, line string) error {
	return w.print(fmt.Sprintf("::muster progress=%g", fraction), line)
}

func (w *nodeAssignment) Succeed(ctx context.Context, word string) error {
	_ = w.print(endLine(word)) // of a job that is over there is no folder
	return w.n.report(ctx, w.id, "completed")
}

func (w *nodeAssignment) Fail(ctx context.Context, message string) error {
	_ = w.print(`::trainforge {"end":true,"exit_code":1,"failure":{"reason":"bad_input","message":"` + message + `"}}`)
	return w.n.report(ctx, w.id, "failed")
}

func TestNodeConforms(t *testing.T) {
	t.Parallel()
	s, shared := suite(t)
	s.Paths = []string{"/api/workers/register", "/api/workers/heartbeat", "/api/workers/job-status", "/api/workers/unregister"}
	s.Start = func(t *testing.T, base, id, key string) dialecttest.Worker {
		t.Helper()
		return &nodeWorker{conformClient: newConformClient(t, base, key), id: id, shared: shared, taken: map[string]bool{}}
	}
	dialecttest.Conform(t, s)
}

// pathAssignment is a task of workers B and C.
type pathAssignment struct {
	c      *conformClient
	id     string
	poller bool
}

func (w *pathAssignment) ID() string { return w.id }

func (w *pathAssignment) print(ctx context.Context, line string) error {
	if w.poller {
		return w.c.must(ctx, "POST", "/api/jobs/"+url.PathEscape(w.id)+"/logs", dict{"message": line}, nil)
	}
	return w.c.must(ctx, "POST", "/api/jobs/"+url.PathEscape(w.id)+"/logs/batch", dict{"logs": []dict{{"message": line, "timestamp": 1.5}}}, nil)
}

func (w *pathAssignment) alive(ctx context.Context) error {
	return w.print(ctx, `::trainforge {"alive":true}`)
}

func (w *pathAssignment) status(ctx context.Context, status, message string) error {
	if w.poller {
		return w.c.must(ctx, "PUT", "/api/jobs/"+url.PathEscape(w.id), dict{"status": status, "error_message": message}, nil)
	}
	return w.c.must(ctx, "PUT", "/api/jobs/"+url.PathEscape(w.id)+"/status", dict{"status": status, "message": message}, nil)
}

func (w *pathAssignment) Progress(ctx context.Context, fraction float64, line string) error {
	return errors.Join(w.print(ctx, fmt.Sprintf("::muster progress=%g", fraction)), w.print(ctx, line))
}

func (w *pathAssignment) Succeed(ctx context.Context, word string) error {
	return errors.Join(w.print(ctx, endLine(word)), w.status(ctx, "completed", ""))
}

func (w *pathAssignment) Fail(ctx context.Context, message string) error {
	return w.status(ctx, "failed", message)
}

type pollerWorker struct{ conformClient }

func (p *pollerWorker) NextTask(ctx context.Context) (dialecttest.Assignment, error) {
	return retryUntil(ctx, p.ctx, func() (dialecttest.Assignment, error) {
		var answer struct {
			Jobs []struct {
				ID     string `json:"job_id"`
				Status string `json:"status"`
			} `json:"jobs"`
		}
		_ = p.must(ctx, "GET", "/api/jobs?limit=1", nil, &answer) // next turn
		for _, j := range answer.Jobs {
			if j.Status == "pending" {
				work := &pathAssignment{&p.conformClient, j.ID, true}
				return work, work.status(ctx, "running", "")
			}
		}
		return nil, nil
	})
}

func (p *pollerWorker) Report(ctx context.Context, task string) error {
	return (&pathAssignment{&p.conformClient, task, true}).status(ctx, "completed", "")
}

func TestPollerConforms(t *testing.T) {
	t.Parallel()
	s, _ := suite(t)
	s.Paths = []string{"/api/jobs/x/logs"}
	s.Start = func(t *testing.T, base, _, key string) dialecttest.Worker {
		t.Helper()
		return &pollerWorker{newConformClient(t, base, key)}
	}
	dialecttest.Conform(t, s)
}

type externalWorker struct {
	conformClient

	id string
	mu sync.Mutex
	in bool
}

func (e *externalWorker) NextTask(ctx context.Context) (dialecttest.Assignment, error) {
	return retryUntil(ctx, e.ctx, func() (dialecttest.Assignment, error) {
		e.mu.Lock()
		defer e.mu.Unlock()
		if !e.in {
			if err := e.must(ctx, "POST", "/api/workers/register", dict{"worker_id": e.id, "status": "idle", "worker_type": "external_colab", "capabilities": dict{"gpu_count": 0}}, nil); err != nil {
				return nil, err
			}
			e.in = true
		}
		_ = e.must(ctx, "POST", "/api/workers/"+url.PathEscape(e.id)+"/heartbeat", dict{"timestamp": 1.5}, nil)
		var jobs []struct {
			ID string `json:"job_id"`
		}
		if err := e.must(ctx, "GET", "/api/jobs/pending", nil, &jobs); err != nil || len(jobs) == 0 {
			return nil, nil
		}
		work := &pathAssignment{&e.conformClient, jobs[0].ID, false}
		if err := e.must(ctx, "POST", "/api/jobs/"+work.id+"/claim", dict{"worker_id": e.id}, nil); err != nil {
			return nil, nil
		}
		return work, work.status(ctx, "running", "Training")
	})
}

func (e *externalWorker) Report(ctx context.Context, task string) error {
	return (&pathAssignment{&e.conformClient, task, false}).status(ctx, "completed", "")
}

func TestExternalConforms(t *testing.T) {
	t.Parallel()
	s, _ := suite(t)
	s.Paths = []string{"/api/workers/register", "/api/workers/x/heartbeat", "/api/jobs/x/claim", "/api/jobs/x/logs/batch", "/api/jobs/x/results"}
	s.Start = func(t *testing.T, base, id, key string) dialecttest.Worker {
		t.Helper()
		return &externalWorker{conformClient: newConformClient(t, base, key), id: id}
	}
	dialecttest.Conform(t, s)
}
