package process

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
)

// report says how the attempt ended; err is the failure of a hook. What counts is,
// in this order: that it was told to stop, unless for a timeout that a failed
// device explains; that the worker failed it; how its process ended; and what is
// wrong with its outputs.
func (a *Attempt) report(ctx context.Context, err error) muster.Report {
	r := muster.Report{
		Attempt: a.Task.Attempt, Result: a.result, Artifacts: a.artifacts, LogSize: a.log.size(), StartedAt: a.started, FinishedAt: run.Now(),
	}
	if a.box != nil {
		r.Image = a.box.Image
	}
	stopped := a.stopped()
	if a.exit != nil {
		if a.exit.Code >= 0 {
			r.ExitCode = &a.exit.Code
		}
		r.Usage = a.usage()
	}
	if stopped == nil && (err != nil || a.exit == nil) {
		stopped = told(ctx)
	}
	if stopped != nil && (stopped.Outcome != muster.AttemptTimedOut || !isFault(err)) {
		r.Outcome, r.Reason, r.Message = stopped.Outcome, stopped.Reason, stopped.Message
		return r
	}
	if logErr := a.log.failure(); logErr != nil {
		err = logErr
	} else if bad := a.verdict(); bad != nil && !isFault(err) {
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

// plain reports whether a next life of the worker would make the same report of how the
// process ended, without the attempt's folders: it need not be settled.
func (a *Attempt) plain(r *muster.Report) bool {
	spec := a.Task.Spec
	return a.exit != nil && r.Outcome == muster.AttemptSucceeded && len(r.Artifacts) == 0 && r.Result == nil &&
		len(spec.Outputs) == 0 && spec.Checkpoint == nil && len(a.Task.Grant.GPUs) == 0
}

// isFault reports whether err says that a device failed, which explains every other
// failure.
func isFault(err error) bool {
	f, ok := errors.AsType[*run.TaskError](err)
	return ok && f.Reason == muster.GPUFault
}

// verdict is what is wrong with how the main process ended, if anything is.
func (a *Attempt) verdict() error {
	if a.exit == nil || a.exit.Code == 0 {
		return nil
	}
	x, c := a.exit, &a.counted
	largest := ""
	if x.MaxRSS > 0 {
		largest = fmt.Sprintf(" (its largest process had %s)", x.MaxRSS)
	}
	switch {
	case c.OOMKills != nil && *c.OOMKills > 0:
		return run.Failf(muster.OutOfMemory, "killed because memory ran out: %s", a.memory())
	case a.box != nil && (x.OOM || c.Starved && x.Signal == "SIGKILL"):
		return run.Failf(muster.OutOfMemory, "killed because memory ran out: %s", a.memory())
	case x.OOM && c.OOMKills == nil: // what the machine counts are others' processes, too: it is for tasks that have no group that counts
		return run.Failf(muster.OutOfMemory, "killed because memory ran out%s", largest)
	case c.PIDsDenied != nil && *c.PIDsDenied > 0:
		return run.Failf(muster.PIDLimit, "%s, after it was refused more processes or threads: %s", ended(x), a.pids())
	case a.failure != nil:
		return a.failure
	case a.full(wholly): // by whatever there is on it: a program that cannot write may end in any way
		return run.Failf(muster.DiskFull, "%s; the worker's disk is full", ended(x))
	case x.Signal != "":
		return run.Failf(muster.Signal, "%s%s", ended(x), largest)
	}
	return run.Failf(muster.ExitCode, "%s", ended(x))
}

func ended(x *run.Exit) string {
	if x.Signal != "" {
		return "ended by " + x.Signal
	}
	return fmt.Sprintf("exit code %d", x.Code)
}

// memory tells how much a task had that needed more.
func (a *Attempt) memory() string {
	peak := "it"
	if p := a.counted.MemoryPeak; p != nil {
		peak = fmt.Sprintf("it reached %s and", *p)
	}
	if limit := a.Task.Grant.Memory; limit > 0 {
		return fmt.Sprintf("%s may have %s: ask for more with resources.memory", peak, limit)
	}
	return peak + " needed more than this worker has for all of its tasks: ask for what it needs with resources.memory"
}

// pids tells how many processes a task may have that needed more.
func (a *Attempt) pids() string {
	if limit := a.Task.Grant.PIDs; limit > 0 {
		return fmt.Sprintf("it may have %d at once; ask for more with resources.pids", limit)
	}
	return "it has as many as this worker lets a task have at once; ask for more with resources.pids"
}

// usage puts together what the meter saw, what the kernel counted and what the main
// process was told to have used.
func (a *Attempt) usage() *muster.Usage {
	u, c := a.metered, &a.counted
	u.WallSeconds, u.CPUSeconds = a.exit.Wall.Seconds(), max(a.exit.CPU.Seconds(), u.CPUSeconds)
	if c.CPU != nil {
		u.CPUSeconds = c.CPU.Seconds()
	}
	if u.WallSeconds > 0 {
		// What an engine uses to start a container counts as its own, and its time does not.
		u.CPUAvg = min(u.CPUSeconds/u.WallSeconds, float64(runtime.NumCPU()))
	}
	if u.CPUPeak > 0 {
		u.CPUPeak = max(u.CPUPeak, u.CPUAvg) // what ends between two samples is in no sample
	}
	u.MemoryPeak = max(u.MemoryPeak, a.exit.MaxRSS)
	if c.MemoryPeak != nil {
		u.MemoryPeak = *c.MemoryPeak
	}
	if c.Read != nil {
		u.ReadBytes = *c.Read
	}
	if c.Written != nil {
		u.WriteBytes = *c.Written
	}
	return &u
}
