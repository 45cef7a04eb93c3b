// Package work builds a whole worker from its parts and runs it.
package work

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent"
	"github.com/muster-dev/muster/internal/agent/guard"
	"github.com/muster-dev/muster/internal/agent/probe"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/run/noop"
	"github.com/muster-dev/muster/internal/agent/run/process"
	"github.com/muster-dev/muster/internal/agent/run/script"
	"github.com/muster-dev/muster/internal/agent/transfer"
	"github.com/muster-dev/muster/internal/link"
	"github.com/muster-dev/muster/internal/link/polllink"
	"github.com/muster-dev/muster/internal/link/wslink"
	"github.com/muster-dev/muster/internal/tasklog"
)

// Config says what worker to build.
type Config struct {
	Server        string // base URL, such as "http://10.0.0.5:8700"
	Token         string // a join token; needed once for each data dir
	Name          string // "" means the host's
	Tags          []string
	Labels        map[string]string
	Price         float64       // per hour
	Slots         int           // 0 means probe.Slots
	CPUs          float64       // 0 means what the machine has
	Memory        muster.Size   // 0 means what the machine has
	Data          string        // folder of everything that the worker keeps; made if it is not there
	Cache         muster.Size   // of fetched blobs; 0 means transfer.DefaultBudget
	LogCap        muster.Size   // of one attempt; 0 means run.DefaultLogCap
	ShutdownGrace time.Duration // for running tasks when the worker is told to stop
	AllowPrivate  bool          // scripts may be fetched from private addresses
	Share         guard.Options // how the machine is shared with its owner
	Version       string
}

// Worker is a worker that does nothing until Run.
type Worker struct {
	cfg    Config
	server *url.URL
	log    *slog.Logger
	http   *http.Client
	hurry  chan struct{}
	leave  chan struct{} // closed by Leave
	once   sync.Once     // of leave
}

// New checks the configuration.
func New(cfg Config, log *slog.Logger) (*Worker, error) {
	server, err := url.Parse(cfg.Server)
	if err != nil || server.Host == "" || server.Scheme != "http" && server.Scheme != "https" {
		return nil, muster.Errorf(muster.Invalid, "%q is not a server's URL: write --server such as http://10.0.0.5:8700", cfg.Server)
	}
	switch {
	case cfg.Data == "":
		return nil, muster.Errorf(muster.Invalid, "a worker needs a data dir: give --data")
	case cfg.Slots < 0 || cfg.CPUs < 0 || cfg.Memory < 0 || cfg.Price < 0 || cfg.Cache < 0 || cfg.LogCap < 0 || cfg.ShutdownGrace < 0:
		return nil, muster.Errorf(muster.Invalid, "--slots, --cpus, --memory, --price, sizes and times must not be negative")
	}
	if cfg.Data, err = filepath.Abs(cfg.Data); err != nil {
		return nil, muster.Errorf(muster.Invalid, "the data dir cannot be found: %w", err)
	}
	return &Worker{cfg: cfg, server: server, log: log, http: httpClient(), hurry: make(chan struct{}, 1), leave: make(chan struct{})}, nil
}

// httpClient has no timeout for a whole request, since blobs may be big and polls
// wait; each use bounds its own.
func httpClient() *http.Client {
	transport := &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		ForceAttemptHTTP2:     true,
		TLSHandshakeTimeout:   10 * time.Second,
		ResponseHeaderTimeout: time.Minute,
		IdleConnTimeout:       30 * time.Second,
		MaxIdleConnsPerHost:   4,
	}
	return &http.Client{Transport: transport}
}

// Hurry ends the grace of a shutdown: what still runs is killed and handed back.
// It may be called at any time.
func (w *Worker) Hurry() {
	select {
	case w.hurry <- struct{}{}:
	default:
	}
}

// Leave ends Run, which returns run.ErrLeave: running tasks go on without a worker,
// and the next one on this data dir takes them up. It may be called at any time.
func (w *Worker) Leave() { w.once.Do(func() { close(w.leave) }) }

// Run joins the server if need be and works until ctx ends; then running tasks
// have Config.ShutdownGrace to end. It returns nil after that or after a drain,
// and an error if the server refuses the worker or the machine does not let it
// work. What an earlier life of the worker left running goes on.
func (w *Worker) Run(ctx context.Context) (err error) {
	keep, err := agent.OpenKeep(w.cfg.Data)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, keep.Close()) }()
	facts, err := probe.Run(ctx, w.cfg.Data)
	if err != nil {
		return nil // told to stop before it began
	}
	for _, note := range facts.Notes {
		w.log.Warn(note)
	}
	w.adopt(&facts)
	id, err := w.identity(ctx, facts.Hostname)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return err
	}
	pids, err := agent.OpenPids(w.cfg.Data)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pids.Close()) }()
	if err := pids.KillLeftovers(w.log); err != nil {
		return err
	}
	logs, err := w.cleanUp(ctx, keep)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, logs.Close()) }()
	executors, err := w.executors(id, pids, logs)
	if err != nil {
		return err
	}
	var load probe.Load
	a := agent.New(agent.Config{
		Identity: id, Name: facts.Hostname, Build: w.cfg.Version, Tags: facts.Tags, Labels: w.cfg.Labels, Price: w.cfg.Price,
		Resources: facts.Resources, Dir: w.cfg.Data, Executors: executors, Keep: keep, Logs: logs,
		Dialer: &link.Fallback{
			First:  &wslink.Dialer{Server: w.cfg.Server, Key: id.Key, HTTP: w.http},
			Second: &polllink.Dialer{Server: w.cfg.Server, Key: id.Key, HTTP: w.http},
		},
		Load: load.Sample, Grace: w.cfg.ShutdownGrace, Log: w.log,
	})
	return w.run(ctx, a, w.guard(a, newOffers(facts.Tags, kindsOf(executors), facts.Resources, a.Offer)).Run)
}

// run runs the agent and passes Hurry and Leave on. The rooms beside it are
// stopped when it has ended.
func (w *Worker) run(ctx context.Context, a *agent.Agent, rooms ...func(context.Context) error) (err error) {
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	var beside errgroup.Group
	for _, room := range rooms {
		beside.Go(func() error { return room(life) })
	}
	defer func() {
		end()
		err = errors.Join(err, beside.Wait())
	}()
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	leave := w.leave
	for {
		select {
		case err := <-done:
			return err
		case <-w.hurry:
			a.Hurry()
		case <-leave:
			a.Leave()
			leave = nil
		}
	}
}

// adopt puts what the operator says over what was found out.
func (w *Worker) adopt(f *probe.Facts) {
	if w.cfg.Name != "" {
		f.Hostname = w.cfg.Name
	}
	if f.Hostname == "" {
		f.Hostname = "worker"
	}
	if w.cfg.CPUs > 0 {
		f.Resources.CPUs = w.cfg.CPUs
		f.Resources.Slots = probe.Slots(w.cfg.CPUs)
	}
	w.shape(&f.Resources)
	if w.cfg.Slots > 0 {
		f.Resources.Slots = w.cfg.Slots
	}
	f.Tags = append(f.Tags, w.cfg.Tags...)
}

// identity is who the worker is; it joins the server the first time.
func (w *Worker) identity(ctx context.Context, name string) (agent.Identity, error) {
	id, ok, err := agent.LoadIdentity(w.cfg.Data)
	if ok || err != nil {
		return id, err
	}
	if w.cfg.Token == "" {
		return id, muster.Errorf(muster.Unauthenticated,
			"this worker has not joined %s yet: give --token with the join token that the server printed at its first start", w.server)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var waiter sync.WaitGroup
	defer waiter.Wait()
	defer cancel(nil)
	waiter.Go(func() {
		select {
		case <-w.leave:
			cancel(run.ErrLeave)
		case <-ctx.Done():
		}
	})
	id, err = agent.Join(ctx, w.http, w.server, w.cfg.Token, name, w.cfg.Data, w.log)
	if err != nil && errors.Is(context.Cause(ctx), run.ErrLeave) {
		err = run.ErrLeave
	}
	return id, err
}

// cleanUp removes what an earlier life left on disk and nobody waits for: the
// folders of its tasks, and the logs of jobs without a kept report.
func (w *Worker) cleanUp(ctx context.Context, keep *agent.Keep) (*tasklog.Dir, error) {
	if err := os.RemoveAll(filepath.Join(w.cfg.Data, "tasks")); err != nil {
		w.log.Warn("the folders of earlier tasks cannot be removed", slog.Any("error", err))
	}
	folder := filepath.Join(w.cfg.Data, "logs")
	logs, err := tasklog.OpenDir(folder)
	if err != nil {
		return nil, err
	}
	reports, err := keep.Reports()
	if err != nil {
		return logs, nil //nolint:nilerr // the agent tells of damaged reports; their logs stay
	}
	wanted := map[muster.JobID]bool{}
	for i := range reports {
		wanted[reports[i].Attempt.Task.Job] = true
	}
	jobs, err := os.ReadDir(folder)
	if err != nil {
		return nil, errors.Join(muster.Errorf(muster.Internal, "the folder of logs cannot be read: %w", err), logs.Close())
	}
	for _, d := range jobs {
		job, err := muster.ParseJobID(d.Name())
		if err != nil || wanted[job] {
			continue
		}
		if err := logs.Remove(ctx, job); err != nil {
			w.log.Warn("the logs of an earlier job cannot be removed", slog.Any("error", err))
		}
	}
	return logs, nil
}

func (w *Worker) executors(id agent.Identity, pids *agent.Pids, logs *tasklog.Dir) ([]run.Executor, error) {
	blobs, err := transfer.New(transfer.Config{
		Server: w.server, Key: id.Key, HTTP: w.http, Dir: filepath.Join(w.cfg.Data, "cache"), Budget: w.cfg.Cache, Log: w.log,
	})
	if err != nil {
		return nil, err
	}
	env := &run.Env{
		Dir: w.cfg.Data, Transfer: blobs, Logs: logs, Pids: pids, Log: w.log,
		LogCap: int64(w.cfg.LogCap), AllowPrivate: w.cfg.AllowPrivate,
	}
	processes, err := process.New(env)
	if err != nil {
		return nil, err
	}
	scripts, err := script.New(env)
	if err != nil {
		return nil, err
	}
	return []run.Executor{noop.New(), processes, scripts}, nil
}
