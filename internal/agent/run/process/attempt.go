package process

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/redact"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/tasklog"
)

// Attempt is the state of one attempt while the phases run. It belongs to the goroutine that runs them; only LogLine and
// SetStep may be called from other goroutines.
type Attempt struct {
	Task *run.Task
	Dir  string // the task's folder, absolute

	executor *Executor
	reporter run.Reporter
	base     string // holds work, out, tmp and events
	log      *attemptLog
	redactor *redact.Redactor // nil for a task without secrets

	mode           runMode
	checkpoint     string
	argv           []string // nil: the command of the image
	programArgv    []string // argv without the launcher
	hasInterpreter bool     // argv begins with its interpreter: the image's entrypoint is not used
	runtime        string   // folder of a Python environment, or ""
	setup          programSetup
	isolation      *run.IsolationSpec
	env            []string
	hasDevices     bool           // the devices of the grant are this attempt's
	container      *run.Container // nil until it is created
	removalStarted bool           // container is removed, or removal is removing it
	removal        sync.WaitGroup

	stepShown    atomic.Bool // SetStep was called
	firstStep    string      // see SetFirstStep
	proc         run.Proc    // nil until it is started
	started      muster.Time
	stopSave     func(last time.Duration) // stops uploading the checkpoint; nil if it is not uploaded
	removeAccess func()                   // see Deps.Access; nil if there is none
	exit         *run.Exit                // nil until the process has exited
	meteredUsage muster.Usage
	stats        run.CgroupStats

	claimedFailure *run.TaskError // from failure.json
	result         json.RawMessage
	ownResult      bool // the task wrote result.json
	defaultResult  bool // the result has only what the log has, too
	artifacts      []muster.Artifact
}

// LogLine writes a line from Muster into the task's log.
func (a *Attempt) LogLine(line string) { a.log.logLine(a.redactor.String(line)) }

// SetStep reports what Muster does for the task before its program runs.
func (a *Attempt) SetStep(step string) {
	a.stepShown.Store(true)
	step = a.redactor.String(step)
	a.reporter.Progress(muster.Progress{Attempt: a.Task.Attempt, Step: &step})
}

// Observer reports steps and writes lines for the task.
func (a *Attempt) Observer() run.Observer {
	return run.Observer{Step: a.SetStep, LogLine: a.LogLine, Requester: "task " + a.Task.Attempt.Task.String()}
}

// SetFirstStep sets the step to report from the start of the program until the program reports one.
func (a *Attempt) SetFirstStep(step string) { a.firstStep = step }

// OpenRoot opens the task's folder for file operations that cannot escape it.
func (a *Attempt) OpenRoot() (*os.Root, error) {
	r, err := os.OpenRoot(a.Dir)
	if err != nil {
		return nil, run.Failf(muster.WorkerInternal, "open the task's folder: %w", err)
	}
	return r, nil
}

// stopped returns why the running task was stopped, nil if it was not.
func (a *Attempt) stopped() *run.Stopped {
	if a.exit == nil {
		return nil
	}
	return a.exit.Stopped
}

// detaching reports whether the task keeps running for the worker's next incarnation.
func detaching(ctx context.Context) bool { return errors.Is(context.Cause(ctx), run.ErrDetach) }

// appendTimeout limits one append to the worker's log.
const appendTimeout = 30 * time.Second

// attemptLog writes Muster's lines to an attempt's log: directly until the task's process starts, then through the supervisor, which
// is the only writer from then on. Its methods may be called concurrently.
type attemptLog struct {
	appendFunc func(offset int64, data []byte) (int64, error)
	onGrow     func(size int64)

	mu     sync.Mutex
	proc   run.Proc // set when the supervisor writes the log
	offset int64
	err    error // the first failure; nothing is written after it
}

// newAttemptLog returns the log of an attempt. It keeps working after ctx ends.
func newAttemptLog(ctx context.Context, deps *Deps, id muster.AttemptID, reporter run.Reporter) *attemptLog {
	ctx = context.WithoutCancel(ctx)
	appendFunc := func(offset int64, data []byte) (int64, error) {
		ctx, cancel := context.WithTimeout(ctx, appendTimeout)
		defer cancel()
		return deps.Logs.Append(ctx, id, offset, data)
	}
	return &attemptLog{appendFunc: appendFunc, onGrow: reporter.LogGrew}
}

// handOver calls start with the size of the log. The process that it returns is the log's writer from then on.
func (l *attemptLog) handOver(start func(size int64) (run.Proc, error)) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	p, err := start(l.offset)
	if err != nil {
		return err
	}
	l.proc = p
	return nil
}

func (l *attemptLog) failure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

func (l *attemptLog) size() int64 {
	l.mu.Lock()
	proc, offset := l.proc, l.offset
	l.mu.Unlock()
	if proc != nil {
		return proc.LogSize()
	}
	return offset
}

func (l *attemptLog) logLine(line string) { l.record(tasklog.System, []byte(line+"\n")) }

func (l *attemptLog) record(stream tasklog.Stream, data []byte) {
	if proc := l.tryAppend(stream, data); proc != nil {
		proc.AppendLog(stream, data) // without the lock: the supervisor orders records itself
	}
}

// tryAppend appends to the log if the worker is its writer. Otherwise it returns the process whose supervisor is.
func (l *attemptLog) tryAppend(stream tasklog.Stream, data []byte) run.Proc {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.proc != nil || l.err != nil {
		return l.proc
	}
	size, err := l.appendFunc(l.offset, tasklog.AppendRecord(nil, tasklog.Record{Stream: stream, At: time.Now(), Data: data}))
	if err != nil {
		l.err = run.Failf(muster.WorkerInternal, "write the task's log on the worker: %w", err)
		return nil
	}
	l.offset = size
	l.onGrow(size)
	return nil
}
