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
	"github.com/muster-dev/muster/internal/bootclock"
	"github.com/muster-dev/muster/internal/link"
)

// Config configures an Agent.
type Config struct {
	Identity  Identity
	Name      string // shown to people
	Build     string // the version of this program
	Tags      []string
	Labels    map[string]string
	Price     float64         // per hour
	Heartbeat muster.Duration // interval that it asks the server for; 0 means the server's
	Address   string          // where other workers reach this one; "" means the address that the server sees
	Resources muster.Resources
	Dir       string        // the data dir; Reports is its lock
	Allow     *muster.Allow // what tasks may use, whatever the server assigns; nil means the defaults
	Executors []run.Executor
	Kinds     []string        // accept new tasks only for these kinds of Executors; nil means all
	OwnKinds  json.RawMessage // definitions of the owner's custom kinds, as a JSON list
	Lacks     []string        // features that tasks cannot use here: see muster.Worker
	Projects  []string        // accept tasks only from these projects; empty means all
	Reports   *ReportStore
	Signed    Signatures // decides about the signatures of jobs; nil if the owner requires none

	// Supervisor is the parent of the tasks' processes, across restarts of the worker.
	Supervisor Supervisor
	// OnReportAcked is called once for each ended attempt: when the server has recorded its report, or does not want it. It must not
	// block. Nil is allowed.
	OnReportAcked func(id muster.AttemptID, recorded bool)
	// OnRefused is called for what the server sent and this worker refuses, with one of the Refused constants. It must not block. Nil is allowed.
	OnRefused func(reason string)
	// RemoteTasks says that tasks run on another machine: the ports of gangs are not reserved on this one.
	RemoteTasks bool
	// OnHeal receives the quarantined GPUs to check again: UUIDs, or "all". It must not block. Nil is allowed.
	OnHeal func(uuids []string)
	// OnExec opens the connection of a command in an attempt. It must not block. Nil is allowed.
	OnExec func(x link.Exec)

	Logs   Logs
	Dialer link.Dialer
	Load   func(ctx context.Context) *muster.Load // the current load of the host; nil where unknown
	Grace  time.Duration                          // how long running tasks may continue after Run's ctx ended
	Log    *slog.Logger
}

func (c *Config) identityPath() string { return filepath.Join(c.Dir, identityFile) }

// Supervisor is the part of run.Supervisor that an Agent uses itself.
type Supervisor interface {
	Recovered() []run.Recovered
	SetLastContact(at time.Duration)
	LastContact() time.Duration
	Freeze(id muster.AttemptID, on bool) error
	Forget(ids ...muster.AttemptID)
}

// Signatures verifies the signatures of jobs.
type Signatures interface {
	// Verify returns the spec that was signed for a task, and a Forbidden error that says why the worker must not run it.
	Verify(t *run.Task, sig *muster.Signature) (*muster.TaskSpec, error)
}

// Agent is one worker.
type Agent struct {
	cfg       Config
	log       *slog.Logger
	table     *attemptTable
	executors map[string]run.Executor
	tasks     sync.WaitGroup // running executors
	readers   *logReaders    // open local logs
	refused   sync.Map       // the reasons for which something was refused

	drained     chan struct{} // closed when the server has drained the worker
	drainedOnce sync.Once
	detaching   chan struct{} // closed when the tasks are left to the next process
	detachOnce  sync.Once
	forced      chan struct{} // closed when the shutdown no longer waits
	forceOnce   sync.Once
}

// New returns an agent that is idle until Run.
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
	a.table = newAttemptTable(muster.Offer{
		Tags: cfg.Tags, Kinds: a.kinds(), OwnKinds: cfg.OwnKinds, Resources: cfg.Resources, Allow: cfg.Allow, Lacks: cfg.Lacks, Projects: cfg.Projects,
	}, bootclock.Now, cfg.Log)
	a.table.onAcked = cfg.OnReportAcked
	return a
}

// kinds lists the kinds of which new tasks are accepted.
func (a *Agent) kinds() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(a.executors)), func(kind string) bool { return !a.accepts(kind) })
}

func (a *Agent) accepts(kind string) bool {
	return a.executors[kind] != nil && (a.cfg.Kinds == nil || slices.Contains(a.cfg.Kinds, kind))
}

// Run works until ctx ends. Then it accepts no new tasks, lets running tasks continue for Config.Grace, returns the others, and says
// goodbye. It returns nil after that, or after the server drained the worker; then no task runs. After Detach it returns run.ErrDetach,
// and the tasks keep running. It returns an error at once if the server permanently refuses the worker.
func (a *Agent) Run(ctx context.Context) error {
	defer a.readers.closeAll()
	tasks := context.WithoutCancel(ctx)
	if err := a.restore(ctx, tasks); err != nil {
		a.table.stopEach(detachCause) // keep the tasks running
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
	a.table.stopEach(shutDownCause)
	a.tasks.Wait()
	_, saveErr := a.flushIO(context.WithoutCancel(ctx), true)
	if errors.Is(err, errStopped) {
		err = nil
	}
	return errors.Join(err, saveErr)
}

// Detach ends Run without ending the tasks: their processes keep running, and the next Agent on this data dir recovers them. Tasks
// without a process are returned to the server.
func (a *Agent) Detach() { a.detachOnce.Do(func() { close(a.detaching) }) }

// shutDownCause stops every attempt.
func shutDownCause(*attempt) error { return run.ErrShutDown }

// preemptCause preempts the attempts that have a checkpoint.
func preemptCause(at *attempt) error {
	if at.checkpoint {
		return preempted("the worker is shutting down")
	}
	return nil
}

// detachCause leaves attempts with a process to the supervisor, for the next process of the worker, and returns the others.
func detachCause(at *attempt) error {
	if at.pid.PID != 0 {
		return run.ErrDetach
	}
	return preempted("the worker was upgraded before the task started")
}

// onDrained ends the worker: the server reports that it has drained.
func (a *Agent) onDrained() { a.drainedOnce.Do(func() { close(a.drained) }) }

// ForceShutdown ends the grace period of a shutdown at once: running tasks are killed and returned to the server.
func (a *Agent) ForceShutdown() { a.forceOnce.Do(func() { close(a.forced) }) }

const (
	killTimeout         = 2 * time.Minute // for executors to return after a kill; each task has its own grace as well
	reportTimeout       = 5 * time.Second // for the last reports to be acknowledged
	goodbyeTimeout      = 5 * time.Second // for the goodbye to be sent
	progressLogInterval = 5 * time.Second
)

// shutDown waits until the worker has to stop, and stops it in order. It returns errStopped after that.
func (a *Agent) shutDown(ctx, runCtx context.Context) error {
	select {
	case <-runCtx.Done():
		return nil
	case <-a.drained:
		a.log.Info("drained, leaving")
	case <-a.detaching:
		return a.detach(runCtx)
	case <-ctx.Done():
		a.log.Info("shutting down", slog.Duration("grace", a.cfg.Grace))
	}
	a.table.stopAccepting("the worker is shutting down")
	a.table.stopEach(preemptCause)
	if a.executing() && !a.waitIdle(runCtx, a.cfg.Grace, a.forced, a.executing) {
		a.log.Warn("stopping the running tasks", a.runningTasks())
		a.table.stopEach(shutDownCause)
		a.waitIdle(runCtx, killTimeout, nil, a.executing)
	}
	a.waitIdle(runCtx, reportTimeout, a.forced, func() bool { _, held := a.table.count(); return held > 0 })
	if a.table.queueGoodbye() {
		a.waitIdle(runCtx, goodbyeTimeout, nil, func() bool { return true }) // connect ends runCtx
	}
	return errStopped
}

// detach leaves the tasks running. It sends no goodbye: the server sees a broken connection until the next process connects.
func (a *Agent) detach(runCtx context.Context) error {
	if a.executing() {
		a.log.Info("leaving the running tasks to the next worker process", a.runningTasks())
	}
	a.table.stopAccepting("the worker is being upgraded")
	a.table.stopEach(detachCause)
	a.waitIdle(runCtx, killTimeout, a.forced, a.executing)
	a.waitIdle(runCtx, reportTimeout, a.forced, a.table.hasUnacked)
	return run.ErrDetach
}

func (a *Agent) executing() bool {
	n, _ := a.table.count()
	return n > 0
}

// runningTasks lists the running tasks for a log message.
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

// waitIdle waits until busy returns false, and returns true then. It returns false after timeout, when stop is closed, or when ctx ends.
// It logs its progress.
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

// start runs a task: inline, on the goroutine of the session, if it takes no time, else on its own goroutine.
func (a *Agent) start(ctx context.Context, t *run.Task, inline bool) {
	ex := a.executors[t.Spec.Kind]
	var cancel context.CancelCauseFunc
	if !inline {
		ctx, cancel = context.WithCancelCause(ctx)
	}
	at, rejected := a.table.admit(t, cancel)
	switch {
	case rejected == nil:
	case rejected.reason != "":
		a.refuse(ctx, t.Attempt, rejected.reason, rejected.Message)
	default:
		a.table.reject(&rejected.Rejected)
	}
	switch {
	case inline && at != nil:
		a.execute(ctx, ex, t, at)
	case inline:
	case at == nil:
		cancel(nil)
		t.ReleasePort()
	default:
		a.tasks.Go(func() {
			defer cancel(nil)
			defer t.ReleasePort()
			a.execute(ctx, ex, t, at)
		})
	}
}

// execute runs a task and finishes its attempt with the report. A panic fails the attempt.
func (a *Agent) execute(ctx context.Context, ex run.Executor, t *run.Task, at *attempt) {
	report := new(muster.Report)
	defer func() {
		if p := recover(); p != nil {
			a.log.Error("executor panicked", slog.String("attempt", t.Attempt.String()), slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
			*report = muster.Report{Outcome: muster.AttemptFailed, Reason: muster.WorkerInternal, Message: fmt.Sprintf("bug in the worker: %v", p)}
		}
		if errors.Is(context.Cause(ctx), run.ErrDetach) {
			a.table.onDetached(at)
			return
		}
		a.table.finish(at, report)
	}()
	*report = ex.Run(ctx, t, at)
}
