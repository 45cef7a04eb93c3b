package dialecttest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dialect"
	"github.com/muster-dev/muster/internal/dialect/dialecttest"
	"github.com/muster-dev/muster/internal/dialect/fleet"
)

// TestTiny runs the suite with a minimal gateway.
func TestTiny(t *testing.T) {
	dialecttest.Conform(t, dialecttest.Suite{
		System: tiny(), Task: muster.TaskSpec{Kind: "echo", Input: json.RawMessage(`{}`)}, Start: start, Paths: []string{"/poll", "/report", "/nothing"},
		Capabilities: dialecttest.Capabilities{Progress: true, Log: true, Message: true, Keys: true, DetectsLoss: true},
	})
}

// message is any message to and from a tiny worker.
type message struct {
	Worker   string   `json:"worker,omitempty"`
	Task     string   `json:"task,omitempty"`
	Progress *float64 `json:"progress,omitempty"`
	Line     string   `json:"line,omitempty"`
	Result   string   `json:"result,omitempty"`
	Error    string   `json:"error,omitempty"`
	Busy     bool     `json:"busy,omitempty"`
}

type gateway struct {
	fleet    *fleet.Fleet
	listener *dialect.Listener
}

func tiny() dialect.System {
	return dialect.System{Name: "tiny", Title: "Tiny", Address: ":1", New: func(ctx context.Context, deps dialect.Deps) (dialect.Gateway, error) {
		listener, err := dialect.Listen(ctx, deps)
		if err != nil {
			return nil, err
		}
		f, err := fleet.Open(fleet.Config{
			Server: deps.Server, Dir: filepath.Join(deps.Dir, "fleet"), Log: deps.Log, System: "tiny",
			SilenceTimeout: time.Second, Projects: deps.Config.Projects(), Kinds: deps.Config.Kinds, Price: deps.Config.Price,
		})
		if err != nil {
			return nil, errors.Join(err, listener.Close())
		}
		return &gateway{f, listener}, nil
	}}
}

func (g *gateway) URL() string  { return g.listener.URL() }
func (g *gateway) Ready() error { return nil }

func (g *gateway) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	mux := http.NewServeMux()
	mux.HandleFunc("POST /poll", g.poll)
	mux.HandleFunc("POST /report", g.report)
	group.Go(func() error { return g.fleet.Run(ctx) })
	group.Go(func() error { return g.listener.Serve(ctx, mux) })
	return group.Wait()
}

func writeError(w http.ResponseWriter, err error) {
	status := map[muster.Code]int{muster.Forbidden: 403, muster.Conflict: 409, muster.NotFound: 404, muster.Unavailable: 503, muster.TooLarge: 413}[muster.CodeOf(err)]
	if status == 0 {
		status = 400
	}
	dialect.WriteJSON(w, status, message{Error: err.Error()})
}

func (g *gateway) worker(w http.ResponseWriter, r *http.Request, m *message) *fleet.Worker {
	caller := dialect.CallerFromContext(r.Context())
	err := errors.Join(caller.CanJoinWorkers(), dialect.Decode(r, 64<<10, m))
	if err != nil {
		writeError(w, err)
		return nil
	}
	worker := g.fleet.Worker(m.Worker)
	if worker == nil {
		worker, err = g.fleet.Register(r.Context(), fleet.Facts{
			ID: m.Worker, Kinds: []string{"echo"}, Resources: muster.Resources{CPUs: 1, Slots: 1, MaxTasks: 1}, Key: caller.Key,
		})
		if err != nil {
			writeError(w, err)
			return nil
		}
	}
	worker.Touch(nil)
	return worker
}

func (g *gateway) poll(w http.ResponseWriter, r *http.Request) {
	var m message
	worker := g.worker(w, r, &m)
	if worker == nil {
		return
	}
	if !m.Busy {
		worker.MarkIdle()
		for _, task := range worker.Tasks() {
			if !task.Started() && task.MarkStarted() == nil {
				dialect.WriteJSON(w, 200, message{Task: task.ID()})
				return
			}
		}
	}
	dialect.WriteJSON(w, 200, message{})
}

func (g *gateway) report(w http.ResponseWriter, r *http.Request) {
	var m message
	if g.worker(w, r, &m) == nil {
		return
	}
	task := g.fleet.Task(m.Task)
	if task == nil {
		writeError(w, g.fleet.ReportLate(m.Task))
		return
	}
	var err error
	switch {
	case m.Result != "":
		err = task.Finish(r.Context(), fleet.FinalReport{Outcome: muster.AttemptSucceeded, Result: json.RawMessage(fmt.Sprintf("%q", m.Result))})
	case m.Error != "":
		err = task.Finish(r.Context(), fleet.FinalReport{Outcome: muster.AttemptFailed, Reason: muster.ExitCode, Message: m.Error})
	default:
		err = errors.Join(task.Progress(muster.Progress{Progress: m.Progress}), task.Log(r.Context(), m.Line))
	}
	if err != nil {
		writeError(w, err)
		return
	}
	dialect.WriteJSON(w, 200, message{})
}

// fakeWorker is a worker of the tiny system.
type fakeWorker struct {
	url, id string
	stop    context.CancelFunc
	done    sync.WaitGroup
}

func start(t *testing.T, url, id, key string) dialecttest.Worker {
	t.Helper()
	if key != "" {
		url += "/k/" + key
	}
	ctx, stop := context.WithCancel(context.Background())
	p := &fakeWorker{url: url, id: id, stop: stop}
	p.done.Go(func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				_, _ = p.send(ctx, "/poll", message{Busy: true})
			}
		}
	})
	return p
}

func (p *fakeWorker) Crash() {
	p.stop()
	p.done.Wait()
}

func (p *fakeWorker) send(ctx context.Context, path string, m message) (answer message, err error) {
	m.Worker = p.id
	body, err := json.Marshal(m)
	if err != nil {
		return answer, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url+path, bytes.NewReader(body))
	if err != nil {
		return answer, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return answer, err
	}
	defer resp.Body.Close()
	err = json.NewDecoder(resp.Body).Decode(&answer)
	if resp.StatusCode != http.StatusOK {
		err = errors.Join(err, errors.New(resp.Status+": "+answer.Error))
	}
	return answer, err
}

func (p *fakeWorker) NextTask(ctx context.Context) (dialecttest.Assignment, error) {
	for {
		answer, err := p.send(ctx, "/poll", message{})
		if err != nil && !strings.Contains(err.Error(), "refused") {
			return nil, err
		}
		if answer.Task != "" {
			return &assignment{p, answer.Task}, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (p *fakeWorker) Report(ctx context.Context, task string) error {
	_, err := p.send(ctx, "/report", message{Task: task, Result: "x"})
	return err
}

type assignment struct {
	*fakeWorker

	id string
}

func (w *assignment) ID() string { return w.id }

func (w *assignment) Progress(ctx context.Context, fraction float64, line string) error {
	_, err := w.send(ctx, "/report", message{Task: w.id, Progress: &fraction, Line: line})
	return err
}

func (w *assignment) Succeed(ctx context.Context, word string) error {
	_, err := w.send(ctx, "/report", message{Task: w.id, Result: word})
	return err
}

func (w *assignment) Fail(ctx context.Context, reason string) error {
	_, err := w.send(ctx, "/report", message{Task: w.id, Error: reason})
	return err
}
