package process

import (
	"context"
	"encoding/json"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/liveoutput"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/tasklog"
)

// wait follows the process until nothing of the task is left, and has it stopped
// when ctx ends.
func (a *Attempt) wait(ctx context.Context) error {
	stopMeter := func() muster.Usage { return muster.Usage{} }
	if m := a.executor.deps.Meter; m != nil && a.proc.Exit() == nil {
		stopMeter = m.Watch(&run.Subject{Task: a.Task, Pid: a.proc.Pid(), Isolation: a.isolation, Folders: a.runFolders()}, meterHandler{a})
	}
	a.startSaving()
	defer a.stopSaving()
	defer liveoutput.Watch(ctx, &liveoutput.Source{
		Attempt: a.Task.Attempt, Out: a.openLiveOut, Upload: a.executor.deps.Transfer,
		Report: a.reporter.Progress, LogLine: a.LogLine, Log: a.executor.deps.Log,
	})()
	stop := ctx.Done()
	for a.exit == nil {
		select {
		case <-a.proc.Done():
			a.exit = a.proc.Exit()
		case <-stop:
			if detaching(ctx) {
				stopMeter()
				return run.ErrDetach
			}
			stop = nil
			cause := run.StopCause(ctx)
			a.proc.Stop(cause, a.killSpecFor(cause))
		}
	}
	a.meteredUsage = stopMeter()
	if a.executor.deps.Isolator != nil && a.isolation != nil {
		a.stats = a.executor.deps.Isolator.Stats(a.isolation)
	}
	return nil
}

// killSpecFor says how the task is stopped for a reason, where that is not as its spec says:
// one that has to make room saves its state first.
func (a *Attempt) killSpecFor(cause *run.Stopped) muster.Kill {
	c := a.Task.Spec.Checkpoint
	if c == nil || cause.Reason != muster.Preempted {
		return muster.Kill{}
	}
	return muster.Kill{Signal: c.Signal, Grace: c.Grace}
}

// meterHandler is what the meter tells of an attempt.
type meterHandler struct{ *Attempt }

// Sampled implements run.Watcher.
func (w meterHandler) Sampled(s muster.Sample) {
	b, err := json.Marshal(s)
	if err != nil {
		return // a reading that is no number is none
	}
	w.log.record(tasklog.Usage, b)
}

// Warned implements run.Watcher.
func (w meterHandler) Warned(line string) { w.LogLine(line) }

// Exceeded implements run.Watcher.
func (w meterHandler) Exceeded(cause *run.Stopped) { w.proc.Stop(cause, muster.Kill{}) }
