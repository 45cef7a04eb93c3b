package sched

import (
	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sched/retry"
)

// fault is whose fault the end of an attempt is.
type fault uint8

// The faults.
const (
	noFault     fault = iota // says nothing about the worker
	taskFault                // the task's fault or a success: the worker works
	workerFault              // the worker's fault
)

// faultOf returns whose fault the end of t's current attempt is. A failure that the spec
// may cause, such as an image that cannot be pulled anywhere, is the worker's fault only
// if proven is set: another task of the stage has succeeded.
func faultOf(t *muster.Task, e *retry.End, proven bool) fault {
	switch e.Reason {
	case muster.Preempted, muster.GangMember, muster.WorkerShutdown:
		return noFault
	case muster.FetchFailed, muster.UploadFailed, muster.ImagePull:
		if !proven {
			return noFault
		}
	default:
	}
	switch {
	case e.Uncounted || t.State == muster.Cancelling || e.Outcome == muster.AttemptCancelled:
		return noFault
	case e.Outcome == muster.AttemptSucceeded:
		return taskFault
	case e.Reason.FleetFault():
		return workerFault
	case t.StartedAt > 0:
		return taskFault
	default:
		return noFault
	}
}
