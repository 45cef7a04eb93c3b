package judge

import "github.com/muster-dev/muster"

// Fault is whose fault the end of an attempt is.
type Fault uint8

// The faults.
const (
	NoFault     Fault = iota // says nothing about the worker
	TaskFault                // the task's fault or a success: the worker works
	WorkerFault              // the worker's fault
)

// FaultOf returns whose fault the end of t's current attempt is. A failure that the spec
// may cause, such as an image that cannot be pulled anywhere, is the worker's fault only
// if proven is set: another task of the stage has succeeded.
func FaultOf(t *muster.Task, e *AttemptEnd, proven bool) Fault {
	switch e.Reason {
	case muster.Preempted, muster.GangMember, muster.WorkerShutdown:
		return NoFault
	case muster.FetchFailed, muster.UploadFailed, muster.ImagePull:
		if !proven {
			return NoFault
		}
	default:
	}
	switch {
	case e.Uncounted || t.State == muster.Cancelling || e.Outcome == muster.AttemptCancelled:
		return NoFault
	case e.Outcome == muster.AttemptSucceeded:
		return TaskFault
	case e.Reason.FleetFault():
		return WorkerFault
	case t.StartedAt > 0:
		return TaskFault
	default:
		return NoFault
	}
}
