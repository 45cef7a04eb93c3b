package process

import (
	"context"
	"errors"
	"fmt"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
)

// report says how the attempt ended; err is the failure of a hook. What counts is,
// in this order: that it was told to stop, that the worker failed it, how its
// process ended, and what is wrong with its outputs.
func (a *Attempt) report(ctx context.Context, err error) muster.Report {
	r := muster.Report{Attempt: a.Task.Attempt, Result: a.result, Artifacts: a.artifacts, LogSize: a.log.size(), FinishedAt: run.Now()}
	if !a.started.IsZero() {
		r.StartedAt = muster.TimeOf(a.started)
	}
	if a.exited {
		r.ExitCode = &a.exit.code
		r.Usage = a.exit.usage()
	}
	stopped := a.stopped
	if stopped == nil && (err != nil || !a.exited) {
		stopped = told(ctx)
	}
	if stopped != nil {
		r.Outcome, r.Reason, r.Message = stopped.Outcome, stopped.Reason, stopped.Error()
		return r
	}
	if logErr := a.log.failure(); logErr != nil {
		err = logErr
	} else if bad := a.verdict(); bad != nil {
		err = bad
	}
	if err == nil {
		r.Outcome = muster.AttemptSucceeded
		return r
	}
	r.Outcome, r.Reason, r.Message = muster.AttemptFailed, muster.WorkerInternal, err.Error()
	if f, ok := errors.AsType[*run.TaskError](err); ok {
		r.Reason, r.Message = f.Reason, f.Message
	}
	return r
}

// verdict is what is wrong with how the main process ended, if anything is.
func (a *Attempt) verdict() error {
	if !a.exited {
		return nil
	}
	peak := ""
	if a.exit.maxRSS > 0 {
		peak = fmt.Sprintf(" (its largest process had %s)", a.exit.maxRSS)
	}
	switch x := a.exit; {
	case x.killed && a.e.oom.happened():
		return run.Failf(muster.OutOfMemory, "killed because memory ran out%s", peak)
	case x.signal != "":
		return run.Failf(muster.Signal, "ended by %s%s", x.signal, peak)
	case x.code != 0:
		full := ""
		if noSpace(a.base) {
			full = "; the worker's disk is full"
		}
		return run.Failf(muster.ExitCode, "exit code %d%s", x.code, full)
	}
	return nil
}

func (x *exit) usage() *muster.Usage {
	u := &muster.Usage{WallSeconds: x.wall.Seconds(), CPUSeconds: x.cpu.Seconds(), MemoryPeak: x.maxRSS}
	if u.WallSeconds > 0 {
		u.CPUAvg = u.CPUSeconds / u.WallSeconds
	}
	return u
}
