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
	"github.com/muster-dev/muster/internal/agent/run"
)

// Attempt is one attempt on its way through the hooks. It belongs to the
// goroutine that runs them; Say and Step may be called from any.
type Attempt struct {
	Task *run.Task
	Dir  string // the task's folder, absolute

	executor *Executor
	reporter run.Reporter
	base     string // holds work, out, tmp and events
	log      *attemptLog

	mode           runMode
	checkpoint     string
	argv           []string // nil for what the image says
	programArgv    []string // without its launcher
	hasInterpreter bool     // argv begins with its interpreter: an image's entrypoint is not wanted
	runtime        string   // folder of a Python environment, or ""
	setup          programSetup
	isolation      *run.IsolationSpec
	env            []string
	hasDevices     bool           // the devices of the grant are this attempt's
	container      *run.Container // nil until it is made
	removalStarted bool           // box is removed, or is being removed by removal
	removal        sync.WaitGroup

	stepShown    atomic.Bool // Step was called
	firstStep    string      // see First
	proc         run.Proc    // nil until it was started
	started      muster.Time
	stopSave     func(last time.Duration) // ends the saving of the checkpoint; nil if it is not saved
	exit         *run.Exit                // nil until it ended
	meteredUsage muster.Usage
	stats        run.CgroupStats

	claimedFailure *run.TaskError // as the program tells it
	result         json.RawMessage
	artifacts      []muster.Artifact
}

// LogLine writes a word from Muster into the task's log, as a line.
func (a *Attempt) LogLine(line string) { a.log.logLine(line) }

// SetStep shows what is being done while the task itself does not run yet.
func (a *Attempt) SetStep(step string) {
	a.stepShown.Store(true)
	a.reporter.Progress(muster.Progress{Attempt: a.Task.Attempt, Step: &step})
}

// SetFirstStep sets the step that is shown from when the program is started until it tells one.
func (a *Attempt) SetFirstStep(step string) { a.firstStep = step }

// OpenRoot opens the task's folder, for work that must not leave it.
func (a *Attempt) OpenRoot() (*os.Root, error) {
	r, err := os.OpenRoot(a.Dir)
	if err != nil {
		return nil, run.Failf(muster.WorkerInternal, "the task's folder cannot be opened: %w", err)
	}
	return r, nil
}

// stopped returns why the task was told to stop while it ran, nil if it was not.
func (a *Attempt) stopped() *run.Stopped {
	if a.exit == nil {
		return nil
	}
	return a.exit.Stopped
}

// detaching reports whether the task is to be left to the worker's next life.
func detaching(ctx context.Context) bool { return errors.Is(context.Cause(ctx), run.ErrDetach) }

// stopCause returns the Stopped cause of ctx if it has ended.
func stopCause(ctx context.Context) *run.Stopped {
	if ctx.Err() == nil {
		return nil
	}
	return run.StopCause(ctx)
}
