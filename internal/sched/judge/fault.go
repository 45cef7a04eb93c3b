package judge

import "github.com/muster-dev/muster"

// Fault is who an attempt's end speaks against.
type Fault uint8

// The parties.
const (
	NoFault     Fault = iota // it says nothing about how well the worker does
	TaskFault                // its own fault, or nobody's: the worker did its part
	WorkerFault              // the worker failed it
)

// FaultOf says against whom the end of t's current attempt speaks. What may come from what
// the task asks for, such as an image that cannot be pulled anywhere, speaks against the worker only
// if proven: another task of the stage has succeeded.
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
