package process

import (
	"context"
	"encoding/json"
	"os"
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
	log  *logWriter

	checkpoint string
	argv       []string
	runtime    string // folder of a Python environment, or ""
	env        []string

	stepped atomic.Bool // Step was called
	proc    child
	kin     run.Pid
	pipes   pumps
	events  eventsFile
	started time.Time
	exited  bool
	exit    exit
	stopped *run.Stopped // why it was told to stop while it ran

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

// Root opens the task's folder, for work that must not leave it.
func (a *Attempt) Root() (*os.Root, error) {
	r, err := os.OpenRoot(a.Dir)
	if err != nil {
		return nil, run.Failf(muster.WorkerInternal, "the task's folder cannot be opened: %w", err)
	}
	return r, nil
}

// told returns the Stopped cause of ctx if it has ended.
func told(ctx context.Context) *run.Stopped {
	if ctx.Err() == nil {
		return nil
	}
	return run.StoppedBy(ctx)
}
