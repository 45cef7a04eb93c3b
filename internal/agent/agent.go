package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
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
	Address   string  // at which other workers reach this one; "" means where the server sees it
	Resources muster.Resources
	Dir       string        // the data dir, of which Keep is the lock
	Allow     *muster.Allow // what tasks may have, whatever the server says; nil means what a new worker allows
	Executors []run.Executor
	Kinds     []string        // of Executors that new tasks are taken for; nil means all
	OwnKinds  json.RawMessage // definitions of the kinds among them that the owner added: a list
	Lacks     []string        // features that no task here can have: see muster.Worker
	Projects  []string        // whose tasks are taken; none means all
	Reports   *ReportStore

	// Supervisor stands by the processes of tasks, from one life of the worker to the
	// next.
	Supervisor Supervisor
	// OnReportAcked is told of each ended attempt once, when the server has its report, which is recorded then, or wants nothing
	// of it any more. It must not block. Nil means that nobody asks.
	OnReportAcked func(id muster.AttemptID, recorded bool)
	// RemoteTasks says that tasks run on another machine: the ports at which gangs meet are not held on this one.
	RemoteTasks bool
	// OnHeal is told which quarantined GPUs to look at again: UUIDs, or "all". It must
	// not block. Nil means that there is nothing to heal.
	OnHeal func(uuids []string)

	Logs   Logs
	Dialer link.Dialer
	Load   func(ctx context.Context) *muster.Load // what the host does now; nil where unknown
	Grace  time.Duration                          // how long running tasks may go on after Run's ctx ended
	Log    *slog.Logger
}

func (c *Config) identityPath() string { return filepath.Join(c.Dir, identityFile) }

// Supervisor is what an Agent asks of a run.Supervisor, which says more of each method.
type Supervisor interface {
	Recovered() []run.Recovered
	SetLastContact(at time.Duration)
	LastContact() time.Duration
	Freeze(id muster.AttemptID, on bool) error
	Forget(ids ...muster.AttemptID)
}

// Agent is one worker.
type Agent struct {
	cfg       Config
	log       *slog.Logger
	table     *attemptTable
	executors map[string]run.Executor
	tasks     sync.WaitGroup // executors that have not returned
	readers   *logReaders    // of the logs that are shipped

	drained     chan struct{} // closed when the server lets the worker go
	drainedOnce sync.Once
	detaching   chan struct{} // closed when the tasks are left to the next life
	detachOnce  sync.Once
	forced      chan struct{} // closed when nothing is waited for any more
	forceOnce   sync.Once
}

// New makes an agent that does nothing until Run.
func New(cfg Config) *Agent {
	a := &Agent{
		cfg:       cfg,
		log:       cfg.Log,
		executors: map[string]run.Executor{},
		readers:   &logReaders{logs: cfg.Logs},
		drained:   make(chan struct{}),
		detaching: make(chan struct{}),
		forced:    make(chan struct{}),
	}
	for _, ex := range cfg.Executors {
		a.executors[ex.Kind()] = ex
	}
	a.table = newAttemptTable(link.Offer{
		Tags: cfg.Tags, Kinds: a.kinds(), OwnKinds: cfg.OwnKinds, Resources: cfg.Resources, Allow: cfg.Allow, Lacks: cfg.Lacks, Projects: cfg.Projects,
	}, run.BootClock, cfg.Log)
	a.table.onAcked = cfg.OnReportAcked
	return a
}

// kinds lists what new tasks are taken for.
func (a *Agent) kinds() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(a.executors)), func(kind string) bool { return !a.accepts(kind) })
}

func (a *Agent) accepts(kind string) bool {
	return a.executors[kind] != nil && (a.cfg.Kinds == nil || slices.Contains(a.cfg.Kinds, kind))
}

func (a *Agent) load(ctx context.Context) *muster.Load {
	if a.cfg.Load == nil {
		return nil
	}
	return a.cfg.Load(ctx)
}

// Run works until ctx ends; then it takes nothing new, lets running tasks go on
// for Config.Grace, hands back what is left, and says goodbye. It returns nil
// after that, and after the server drained the worker; then no task runs. After
// Leave it returns run.ErrDetach, and tasks run on. It returns an error at once if
// the server refuses the worker for good.
func (a *Agent) Run(ctx context.Context) error {
	defer a.readers.closeAll()
	tasks := context.WithoutCancel(ctx)
	if err := a.restore(ctx, tasks); err != nil {
		a.table.detachAll() // nothing of them is lost yet
		a.tasks.Wait()
		return err
	}
	g, runCtx := errgroup.WithContext(tasks)
	g.Go(func() error { return a.ioLoop(runCtx) })
	g.Go(func() error { return a.table.watchLeases(runCtx) })
	g.Go(func() error {
		if err := a.connect(runCtx); err != nil {
			return err
		}
		return errStopped
	})
	g.Go(func() error { return a.shutDown(ctx, runCtx) })
	err := g.Wait()

	a.table.stopAccepting("the worker has stopped")
	a.table.stopAll(errShutDown)
	a.tasks.Wait()
	_, saveErr := a.flushIO(context.WithoutCancel(ctx), true)
	if errors.Is(err, errStopped) {
		err = nil
	}
	return errors.Join(err, saveErr)
}

// Detach ends Run without ending the tasks: their processes go on, and the next
// Agent on this data dir finds them. Those that have none yet are handed back.
func (a *Agent) Detach() { a.detachOnce.Do(func() { close(a.detaching) }) }

var errShutDown = &run.Stopped{Outcome: muster.AttemptLost, Reason: muster.WorkerShutdown, Message: "the worker shut down"}

// onDrained ends the worker on the server's word: it holds nothing any more.
func (a *Agent) onDrained() { a.drainedOnce.Do(func() { close(a.drained) }) }

// ForceShutdown ends the grace of a shutdown at once: what still runs is killed and
// handed back.
func (a *Agent) ForceShutdown() { a.forceOnce.Do(func() { close(a.forced) }) }

const (
	killTimeout         = 2 * time.Minute // for executors to end what was killed; they keep to each task's own grace
	reportTimeout       = 5 * time.Second // for the last reports to be acknowledged
	goodbyeTimeout      = 5 * time.Second // for the goodbye to leave
	progressLogInterval = 5 * time.Second // what is waited for
)

// shutDown waits until the worker is to go, and sees to it that it goes in
// order. It returns errStopped when it went.
func (a *Agent) shutDown(ctx, runCtx context.Context) error {
	select {
	case <-runCtx.Done():
		return nil
	case <-a.drained:
		a.log.Info("drained; leaving")
	case <-a.detaching:
		return a.detach(runCtx)
	case <-ctx.Done():
		a.log.Info("shutting down", slog.Duration("grace", a.cfg.Grace))
	}
	a.table.stopAccepting("the worker is shutting down")
	a.table.preemptAll("the worker is shutting down")
	if a.executing() && !a.waitIdle(runCtx, a.cfg.Grace, a.forced, a.executing) {
		a.log.Warn("stopping the tasks that still run", a.runningTasks())
		a.table.stopAll(errShutDown)
		a.waitIdle(runCtx, killTimeout, nil, a.executing)
	}
	holding := func() bool { _, n := a.table.count(); return n > 0 }
	a.waitIdle(runCtx, reportTimeout, a.forced, holding)
	if a.table.queueGoodbye() {
		a.waitIdle(runCtx, goodbyeTimeout, nil, func() bool { return true }) // connect ends life
	}
	return errStopped
}

// detach ends the worker's part in its tasks and leaves them running. There is no
// goodbye: for the server it is a connection that broke, and comes back.
func (a *Agent) detach(runCtx context.Context) error {
	if a.executing() {
		a.log.Info("leaving the running tasks to the next life of this worker", a.runningTasks())
	}
	a.table.stopAccepting("the worker is being upgraded")
	a.table.detachAll()
	a.waitIdle(runCtx, killTimeout, a.forced, a.executing)
	a.waitIdle(runCtx, reportTimeout, a.forced, a.table.hasUnacked)
	return run.ErrDetach
}

func (a *Agent) executing() bool {
	n, _ := a.table.count()
	return n > 0
}

// runningTasks names the tasks that run.
func (a *Agent) runningTasks() slog.Attr {
	const limit = 20
	var names []string
	for _, r := range a.Running() {
		names = append(names, r.Attempt.Task.String())
	}
	if more := len(names) - limit; more > 0 {
		names = append(names[:limit], fmt.Sprintf("and %d more", more))
	}
	return slog.String("tasks", strings.Join(names, " "))
}

// waitIdle returns true once busy does not hold any more, and false after most, when stop
// is closed, or when ctx ends. It tells now and then what it waits for.
func (a *Agent) waitIdle(ctx context.Context, timeout time.Duration, stop <-chan struct{}, busy func() bool) bool {
	began := time.Now()
	t := time.NewTimer(timeout)
	defer t.Stop()
	progress := time.NewTicker(progressLogInterval)
	defer progress.Stop()
	for busy() {
		select {
		case <-a.table.idle:
		case <-progress.C:
			if a.executing() {
				a.log.Info("waiting for tasks to end", a.runningTasks(), slog.Duration("left", (timeout-time.Since(began)).Round(time.Second)))
			}
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
	at, rejection := a.table.admit(t.Attempt, t.Spec, t.Grant, cancel)
	if at == nil {
		cancel(nil)
		t.ReleasePort()
		if rejection != nil {
			a.table.reject(rejection)
		}
		return
	}
	a.tasks.Go(func() {
		defer cancel(nil)
		defer t.ReleasePort()
		a.execute(ctx, ex, t, at)
	})
}

// runInline runs a task that takes no time on the goroutine of the session.
func (a *Agent) runInline(ctx context.Context, ex run.Executor, t *run.Task) {
	at, rejection := a.table.admit(t.Attempt, t.Spec, t.Grant, nil)
	if at != nil {
		a.execute(ctx, ex, t, at)
	} else if rejection != nil {
		a.table.reject(rejection)
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
		if errors.Is(context.Cause(ctx), run.ErrDetach) {
			a.table.onDetached(at)
			return
		}
		a.table.finish(at, report)
	}()
	*report = ex.Run(ctx, t, at)
}
