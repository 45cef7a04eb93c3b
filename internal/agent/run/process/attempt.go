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

	e    *Executor
	sink run.Sink
	base string // holds work, out, tmp and events
	log  *attemptLog

	setting    setting
	checkpoint string
	argv       []string // nil for what the image says
	bare       []string // without its launcher
	whole      bool     // argv begins with its interpreter: an image's entrypoint is not wanted
	runtime    string   // folder of a Python environment, or ""
	needs      needs
	confine    *run.Confine
	env        []string
	devices    bool           // the devices of the grant are this attempt's
	box        *run.Container // nil until it is made
	unmade     bool           // box is removed, or is being removed by removal
	removal    sync.WaitGroup

	stepped atomic.Bool // Step was called
	first   string      // see First
	proc    run.Proc    // nil until it was started
	started muster.Time
	saved   func(last time.Duration) // ends the saving of the checkpoint; nil if it is not saved
	exit    *run.Exit                // nil until it ended
	metered muster.Usage
	counted run.Counted

	failure   *run.TaskError // as the program tells it
	result    json.RawMessage
	artifacts []muster.Artifact
}

// Say writes a word from Muster into the task's log, as a line.
func (a *Attempt) Say(line string) { a.log.say(line) }

// Step shows what is being done while the task itself does not run yet.
func (a *Attempt) Step(step string) {
	a.stepped.Store(true)
	a.sink.Progress(muster.Progress{Attempt: a.Task.Attempt, Step: &step})
}

// First sets the step that is shown from when the program is started until it tells one.
func (a *Attempt) First(step string) { a.first = step }

// Root opens the task's folder, for work that must not leave it.
func (a *Attempt) Root() (*os.Root, error) {
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

// left reports whether the task is to be left to the worker's next life.
func left(ctx context.Context) bool { return errors.Is(context.Cause(ctx), run.ErrLeave) }

// told returns the Stopped cause of ctx if it has ended.
func told(ctx context.Context) *run.Stopped {
	if ctx.Err() == nil {
		return nil
	}
	return run.StoppedBy(ctx)
}
