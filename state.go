package muster

import "slices"

// TaskState is the state of a task. The zero value is invalid.
type TaskState uint8

// The task states in lifecycle order. Those from Succeeded on are final.
const (
	Waiting    TaskState = iota + 1 // waits for other tasks to succeed
	Queued                          // can be placed as soon as a worker fits
	Assigned                        // offered to a worker that has not accepted it yet
	Running                         // a worker executes it
	Cancelling                      // its worker was asked to stop it and has not confirmed
	Succeeded
	Failed
	TimedOut
	Cancelled
	Skipped // did not run, because a task that it needs did not succeed
)

// TaskStates lists every state in lifecycle order.
var TaskStates = []TaskState{Waiting, Queued, Assigned, Running, Cancelling, Succeeded, Failed, TimedOut, Cancelled, Skipped}

var taskStateNames = [...]string{
	Waiting: "waiting", Queued: "queued", Assigned: "assigned", Running: "running", Cancelling: "cancelling",
	Succeeded: "succeeded", Failed: "failed", TimedOut: "timed_out", Cancelled: "cancelled", Skipped: "skipped",
}

// taskTransitions is the table of legal transitions. Only package sched changes the
// state of tasks, in one function that checks this table. Final states lead back to
// Queued or Waiting if a user retries the task.
var taskTransitions = map[TaskState][]TaskState{
	Waiting:    {Queued, Skipped, Cancelled, TimedOut, Failed},
	Queued:     {Assigned, Succeeded, Waiting, Cancelled, TimedOut, Failed, Skipped},
	Assigned:   {Running, Queued, Cancelling, Succeeded, Failed, TimedOut, Cancelled},
	Running:    {Succeeded, Failed, TimedOut, Cancelling, Cancelled, Queued},
	Cancelling: {Cancelled, TimedOut, Failed, Succeeded, Queued},
	Succeeded:  {},
	Failed:     {Queued, Waiting},
	TimedOut:   {Queued, Waiting},
	Cancelled:  {Queued, Waiting},
	Skipped:    {Queued, Waiting},
}

// CanBecome reports whether a task in state s may move to state next.
func (s TaskState) CanBecome(next TaskState) bool { return slices.Contains(taskTransitions[s], next) }

// Final reports whether a task in state s has ended.
func (s TaskState) Final() bool { return s >= Succeeded }

// HoldsResources reports whether a task in state s occupies resources of a worker.
func (s TaskState) HoldsResources() bool { return s == Assigned || s == Running || s == Cancelling }

// String returns the name used in the API and in the database.
func (s TaskState) String() string {
	if s < Waiting || s > Skipped {
		return "invalid"
	}
	return taskStateNames[s]
}

// MarshalText writes the state's name.
func (s TaskState) MarshalText() ([]byte, error) {
	if s < Waiting || s > Skipped {
		return nil, Errorf(Internal, "task state %d has no name", s)
	}
	return []byte(taskStateNames[s]), nil
}

// UnmarshalText reads a state's name.
func (s *TaskState) UnmarshalText(b []byte) error {
	for _, st := range TaskStates {
		if taskStateNames[st] == string(b) {
			*s = st
			return nil
		}
	}
	return Errorf(Invalid, "%q is not a task state", b)
}

// Outcome is how an attempt ended; AttemptOpen until then.
type Outcome string

// The outcomes of attempts.
const (
	AttemptOpen      Outcome = ""
	AttemptSucceeded Outcome = "succeeded"
	AttemptFailed    Outcome = "failed"
	AttemptTimedOut  Outcome = "timed_out"
	AttemptCancelled Outcome = "cancelled"
	AttemptRejected  Outcome = "rejected" // the worker did not accept it
	AttemptLost      Outcome = "lost"     // the lease expired without contact
)

// JobState is derived from the states of a job's tasks: see Counts.State.
type JobState string

// The job states.
const (
	JobWaiting   JobState = "waiting"
	JobQueued    JobState = "queued"
	JobRunning   JobState = "running"
	JobSucceeded JobState = "succeeded"
	JobFailed    JobState = "failed"
	JobTimedOut  JobState = "timed_out"
	JobCancelled JobState = "cancelled"
)

// Final reports whether a job in state s has ended.
func (s JobState) Final() bool {
	return s == JobSucceeded || s == JobFailed || s == JobTimedOut || s == JobCancelled
}

// JobStates lists every job state.
var JobStates = []JobState{JobWaiting, JobQueued, JobRunning, JobSucceeded, JobFailed, JobTimedOut, JobCancelled}
