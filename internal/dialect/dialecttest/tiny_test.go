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

// TestTiny holds the suite against the smallest gateway that there is.
func TestTiny(t *testing.T) {
	dialecttest.Conform(t, dialecttest.Suite{
		System: tiny(), Task: muster.TaskSpec{Kind: "echo", Input: json.RawMessage(`{}`)}, Start: start, Paths: []string{"/poll", "/report", "/nothing"},
		Can: dialecttest.Can{Progress: true, Log: true, Message: true, Keys: true, Vanish: true},
	})
}

// message is all that a tiny worker says, and is told.
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
	return dialect.System{Name: "tiny", Title: "Tiny", Address: ":1", New: func(ctx context.Context, env dialect.Env) (dialect.Gateway, error) {
		listener, err := dialect.Listen(ctx, env)
		if err != nil {
			return nil, err
		}
		f, err := fleet.Open(fleet.Config{
			Server: env.Server, Dir: filepath.Join(env.Dir, "fleet"), Log: env.Log, System: "tiny",
			Silence: time.Second, Projects: env.Config.Projects(), Kinds: env.Config.Kinds, Price: env.Config.Price,
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

func refuse(w http.ResponseWriter, err error) {
	status := map[muster.Code]int{muster.Forbidden: 403, muster.Conflict: 409, muster.NotFound: 404, muster.Unavailable: 503, muster.TooLarge: 413}[muster.CodeOf(err)]
	if status == 0 {
		status = 400
	}
	dialect.WriteJSON(w, status, message{Error: err.Error()})
}

func (g *gateway) worker(w http.ResponseWriter, r *http.Request, m *message) *fleet.Worker {
	caller := dialect.CallerOf(r.Context())
	err := errors.Join(caller.MayWork(), dialect.Decode(r, 64<<10, m))
	if err != nil {
		refuse(w, err)
		return nil
	}
	worker := g.fleet.Worker(m.Worker)
	if worker == nil {
		worker, err = g.fleet.Register(r.Context(), fleet.Facts{
			ID: m.Worker, Kinds: []string{"echo"}, Resources: muster.Resources{CPUs: 1, Slots: 1, MaxTasks: 1}, Key: caller.Key,
		})
		if err != nil {
			refuse(w, err)
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
		worker.Idle()
		for _, task := range worker.Tasks() {
			if !task.Began() && task.Begin() == nil {
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
		refuse(w, g.fleet.Late(m.Task))
		return
	}
	var err error
	switch {
	case m.Result != "":
		err = task.Finish(r.Context(), fleet.Ending{Outcome: muster.AttemptSucceeded, Result: json.RawMessage(fmt.Sprintf("%q", m.Result))})
	case m.Error != "":
		err = task.Finish(r.Context(), fleet.Ending{Outcome: muster.AttemptFailed, Reason: muster.ExitCode, Message: m.Error})
	default:
		err = errors.Join(task.Progress(muster.Progress{Progress: m.Progress}), task.Log(r.Context(), m.Line))
	}
	if err != nil {
		refuse(w, err)
		return
	}
	dialect.WriteJSON(w, 200, message{})
}

// peer is a worker of the tiny system.
type peer struct {
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
	p := &peer{url: url, id: id, stop: stop}
	p.done.Go(func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				_, _ = p.say(ctx, "/poll", message{Busy: true})
			}
		}
	})
	return p
}

func (p *peer) Vanish() {
	p.stop()
	p.done.Wait()
}

func (p *peer) say(ctx context.Context, path string, m message) (answer message, err error) {
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

func (p *peer) Take(ctx context.Context) (dialecttest.Work, error) {
	for {
		answer, err := p.say(ctx, "/poll", message{})
		if err != nil && !strings.Contains(err.Error(), "refused") {
			return nil, err
		}
		if answer.Task != "" {
			return &work{p, answer.Task}, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (p *peer) Report(ctx context.Context, task string) error {
	_, err := p.say(ctx, "/report", message{Task: task, Result: "x"})
	return err
}

type work struct {
	*peer

	id string
}

func (w *work) ID() string { return w.id }

func (w *work) Progress(ctx context.Context, share float64, line string) error {
	_, err := w.say(ctx, "/report", message{Task: w.id, Progress: &share, Line: line})
	return err
}

func (w *work) Succeed(ctx context.Context, word string) error {
	_, err := w.say(ctx, "/report", message{Task: w.id, Result: word})
	return err
}

func (w *work) Fail(ctx context.Context, why string) error {
	_, err := w.say(ctx, "/report", message{Task: w.id, Error: why})
	return err
}
