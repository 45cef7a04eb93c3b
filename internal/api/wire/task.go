package wire

import "github.com/muster-dev/muster"

// ElementSpec is what one task runs.
type ElementSpec struct {
	Task     muster.TaskID   `json:"task"`
	Spec     muster.TaskSpec `json:"spec" doc:"with the values of this element of an array or matrix, and the results of other stages once those are known"`
	Resolved bool            `json:"resolved" doc:"false while references to other stages are not resolved, because those have not finished"`
	Image    string          `json:"image,omitempty" doc:"of the container in which it ran, by its digest"`
}

// The types of TaskEvent.
const (
	EventCreated    = "created"
	EventQueued     = "queued"
	EventAssigned   = "assigned"
	EventStarted    = "started"
	EventCheckpoint = "checkpoint"
	EventEnded      = "ended"
	EventRetry      = "retry"
	EventFinished   = "finished"
)

// TaskEvent is one step in the life of a task.
type TaskEvent struct {
	At      muster.Time     `json:"at"`
	Type    string          `json:"type" enum:"created,queued,assigned,started,checkpoint,ended,retry,finished" doc:"ended is an attempt, finished the task"`
	Attempt int             `json:"attempt,omitempty"`
	Worker  muster.WorkerID `json:"worker,omitempty"`
	Outcome muster.Outcome  `json:"outcome,omitempty" doc:"of an attempt that ended"`
	Reason  muster.Reason   `json:"reason,omitempty"`
	Message string          `json:"message,omitempty"`
}

// TaskEvents are the steps in the life of a task.
type TaskEvents struct {
	Events []TaskEvent `json:"events" nullable:"false" doc:"in order of time; of a task with many attempts the last ones"`
}
