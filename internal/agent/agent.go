package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/link"
)

// Config is what an Agent is made of.
type Config struct {
	Identity  Identity
	Name      string // shown to people
	Build     string // the version of this program
	Tags      []string
	Labels    map[string]string
	Price     float64 // per hour
	Resources muster.Resources
	Dir       string // the data dir, of which Keep is the lock
	Executors []run.Executor
	Keep      *Keep
	Logs      Logs
	Dialer    link.Dialer
	Load      func(ctx context.Context) *muster.Load // what the host does now; nil where unknown
	Grace     time.Duration                          // how long running tasks may go on after Run's ctx ended
	Log       *slog.Logger
}

func (c *Config) identityPath() string { return filepath.Join(c.Dir, identityFile) }

// Agent is one worker.
type Agent struct {
	cfg       Config
	log       *slog.Logger
	roster    *roster
	executors map[string]run.Executor
	tasks     sync.WaitGroup // executors that have not returned

	leave     chan struct{} // closed when the server lets the worker go
	leaveOnce sync.Once
	hurry     chan struct{} // closed when nothing is waited for any more
	hurryOnce sync.Once
}

// New makes an agent that does nothing until Run.
func New(cfg Config) *Agent {
	a := &Agent{
		cfg:       cfg,
		log:       cfg.Log,
		roster:    newRoster(cfg.Resources, run.Clock, cfg.Log),
		executors: map[string]run.Executor{},
		leave:     make(chan struct{}),
		hurry:     make(chan struct{}),
	}
	for _, ex := range cfg.Executors {
		a.executors[ex.Kind()] = ex
	}
	return a
}

func (a *Agent) kinds() []string { return slices.Sorted(maps.Keys(a.executors)) }

func (a *Agent) load(ctx context.Context) *muster.Load {
	if a.cfg.Load == nil {
		return nil
	}
	return a.cfg.Load(ctx)
}

// Run works until ctx ends; then it takes nothing new, lets running tasks go on
// for Config.Grace, hands back what is left, and says goodbye. It returns nil
// after that, and after the server drained the worker. It returns an error at
// once if the server refuses the worker for good. When it returns, no task runs.
func (a *Agent) Run(ctx context.Context) error {
	if err := a.restore(ctx); err != nil {
		return err
	}
	life, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	g, life := errgroup.WithContext(life)
	g.Go(func() error { return a.save(life) })
	g.Go(func() error { return a.roster.watchLeases(life) })
	g.Go(func() error {
		if err := a.connect(life); err != nil {
			return err
		}
		return errStopped
	})
	g.Go(func() error { return a.shutDown(ctx, life) })
	err := g.Wait()

	a.roster.close("the worker has stopped")
	a.roster.stopAll(errShutDown)
	a.tasks.Wait()
	_, saveErr := a.saveOnce(context.WithoutCancel(ctx), true)
	if errors.Is(err, errStopped) {
		err = nil
	}
	return errors.Join(err, saveErr)
}

var errShutDown = &run.Stopped{Outcome: muster.AttemptLost, Reason: muster.WorkerShutdown, Message: "the worker shut down"}

// restore takes up the reports of an earlier life.
func (a *Agent) restore(ctx context.Context) error {
	reports, err := a.cfg.Keep.Reports()
	if err != nil {
		a.log.Error("some reports of an earlier life are lost", slog.Any("error", err))
	}
	for i := range reports {
		r := &reports[i]
		size, err := a.cfg.Logs.Size(ctx, r.Attempt)
		if err != nil {
			return err
		}
		r.LogSize = min(r.LogSize, size)
		a.roster.restore(r)
	}
	return nil
}

// drained ends the worker on the server's word: it holds nothing any more.
func (a *Agent) drained() { a.leaveOnce.Do(func() { close(a.leave) }) }

// Hurry ends the grace of a shutdown at once: what still runs is killed and
// handed back.
func (a *Agent) Hurry() { a.hurryOnce.Do(func() { close(a.hurry) }) }

const (
	killWait   = 2 * time.Minute // for executors to end what was killed; they keep to each task's own grace
	reportWait = 5 * time.Second // for the last reports to be acknowledged
	byeWait    = 5 * time.Second // for the goodbye to leave
)

// shutDown waits until the worker is to go, and sees to it that it goes in
// order. It returns errStopped when it went.
func (a *Agent) shutDown(ctx, life context.Context) error {
	select {
	case <-life.Done():
		return nil
	case <-a.leave:
		a.log.Info("drained; leaving")
	case <-ctx.Done():
		a.log.Info("shutting down", slog.Duration("grace", a.cfg.Grace))
	}
	a.roster.close("the worker is shutting down")
	executing := func() bool { n, _ := a.roster.count(); return n > 0 }
	if executing() && !a.wait(life, a.cfg.Grace, a.hurry, executing) {
		a.log.Warn("stopping the tasks that still run")
		a.roster.stopAll(errShutDown)
		a.wait(life, killWait, nil, executing)
	}
	holding := func() bool { _, n := a.roster.count(); return n > 0 }
	a.wait(life, reportWait, a.hurry, holding)
	if a.roster.sayGoodbye() {
		a.wait(life, byeWait, nil, func() bool { return true }) // connect ends life
	}
	return errStopped
}

// wait returns true once busy does not hold any more, and false after most, when stop
// is closed, or when ctx ends.
func (a *Agent) wait(ctx context.Context, most time.Duration, stop <-chan struct{}, busy func() bool) bool {
	t := time.NewTimer(most)
	defer t.Stop()
	for busy() {
		select {
		case <-a.roster.idle:
		case <-t.C:
			return false
		case <-stop:
			return false
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// start runs a task on a goroutine of its own.
func (a *Agent) start(ctx context.Context, ex run.Executor, t *run.Task) {
	ctx, cancel := context.WithCancelCause(ctx)
	at, why := a.roster.take(t.Attempt, t.Spec, t.Grant, cancel)
	if at == nil {
		cancel(nil)
		if why != "" {
			a.roster.reject(t.Attempt, why)
		}
		return
	}
	a.tasks.Go(func() {
		defer cancel(nil)
		a.execute(ctx, ex, t, at)
	})
}

// runInline runs a task that takes no time on the goroutine of the session.
func (a *Agent) runInline(ctx context.Context, ex run.Executor, t *run.Task) {
	at, why := a.roster.take(t.Attempt, t.Spec, t.Grant, nil)
	if at != nil {
		a.execute(ctx, ex, t, at)
	} else if why != "" {
		a.roster.reject(t.Attempt, why)
	}
}

// execute runs a task and takes its report. A panic is the report of a bug.
func (a *Agent) execute(ctx context.Context, ex run.Executor, t *run.Task, at *attempt) {
	report := new(muster.Report)
	defer func() {
		if p := recover(); p != nil {
			a.log.Error("an executor panicked", slog.String("attempt", t.Attempt.String()), slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
			*report = muster.Report{Outcome: muster.AttemptFailed, Reason: muster.WorkerInternal, Message: fmt.Sprintf("a bug of the worker: %v", p)}
		}
		a.roster.finish(at, report)
	}()
	*report = ex.Run(ctx, t, at)
}
