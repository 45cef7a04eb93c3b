package process

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/liveoutput"
	"github.com/muster-dev/muster/internal/agent/meter"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/tasklog"
)

// reportLive reports live files, without those whose names have the value of a secret.
func (a *Attempt) reportLive(p muster.Progress) {
	p.Artifacts = slices.DeleteFunc(slices.Clone(p.Artifacts), func(f muster.Artifact) bool { return a.redactor.String(f.Name) != f.Name })
	a.reporter.Progress(p)
}

// wait waits until no process of the task is left. It stops the task when ctx ends.
func (a *Attempt) wait(ctx context.Context) error {
	stopMeter := func() muster.Usage { return muster.Usage{} }
	if m := a.executor.deps.Meter; m != nil && a.proc.Exit() == nil {
		s := &meter.Subject{Task: a.Task, Pid: a.proc.Pid(), Isolation: a.isolation, Folders: a.runFolders()}
		if a.container != nil {
			s.Written = a.container.Written
		}
		stopMeter = m.Watch(s, meterHandler{a})
	}
	a.startSaving()
	defer a.stopSaving()
	defer liveoutput.Watch(ctx, &liveoutput.Source{
		Attempt: a.Task.Attempt, Out: a.openLiveOut, Upload: a.executor.deps.Transfer,
		Report: a.reportLive, LogLine: a.LogLine, Log: a.executor.deps.Log,
	})()
	if a.removeAccess != nil {
		defer a.removeAccess()
	}
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

// killSpecFor returns how the task is stopped for a cause, zero for the spec's default. A preempted task gets the signal and the grace
// period of its checkpoint.
func (a *Attempt) killSpecFor(cause *run.Stopped) muster.Kill {
	c := a.Task.Spec.Checkpoint
	if c == nil || cause.Reason != muster.Preempted {
		return muster.Kill{}
	}
	return muster.Kill{Signal: c.Signal, Grace: c.Grace}
}

// meterHandler receives the meter's readings of an attempt.
type meterHandler struct{ *Attempt }

func (w meterHandler) Sampled(s muster.Sample) {
	b, err := json.Marshal(s)
	if err != nil {
		return // NaN and infinities are dropped
	}
	w.log.record(tasklog.Usage, b)
}

func (w meterHandler) Warned(line string) { w.LogLine(line) }

func (w meterHandler) Exceeded(cause *run.Stopped) { w.proc.Stop(cause, muster.Kill{}) }
