package judge

import "github.com/muster-dev/muster"

// Party is who an attempt's end speaks against.
type Party uint8

// The parties.
const (
	Nobody Party = iota // it says nothing about how well the worker does
	Task                // its own fault, or nobody's: the worker did its part
	Worker              // the worker failed it
)

// Blame says against whom the end of t's current attempt speaks. What may come from what
// the task asks for, such as an image that cannot be pulled anywhere, speaks against the worker only
// if proven: another task of the stage has succeeded.
func Blame(t *muster.Task, e *Ending, proven bool) Party {
	switch e.Reason {
	case muster.Preempted, muster.GangMember, muster.WorkerShutdown:
		return Nobody
	case muster.FetchFailed, muster.UploadFailed, muster.ImagePull:
		if !proven {
			return Nobody
		}
	default:
	}
	switch {
	case e.Free || t.State == muster.Cancelling || e.Outcome == muster.AttemptCancelled:
		return Nobody
	case e.Outcome == muster.AttemptSucceeded:
		return Task
	case e.Reason.FleetFault():
		return Worker
	case t.StartedAt > 0:
		return Task
	default:
		return Nobody
	}
}
