package muster

// Event is a committed change, as published to those who watch. Seq only grows;
// it starts anew with each Epoch, which is one life of the server.
type Event struct {
	Epoch       string      `json:"epoch"`
	Seq         uint64      `json:"seq"`
	Type        EventType   `json:"type"`
	At          Time        `json:"at"`
	Job         JobID       `json:"job,omitempty"`
	Task        *TaskID     `json:"task,omitempty"`
	State       string      `json:"state,omitempty"` // of the subject, after the change
	Worker      WorkerID    `json:"worker,omitempty"`
	Constrained string      `json:"why,omitempty"` // of a worker: why it is given nothing new though nobody paused it
	Detail      *TaskDetail `json:"detail,omitempty"`
}

// EventType names what changed.
type EventType string

// The event types.
const (
	EventJob    EventType = "job"    // a job was accepted or its state changed
	EventTask   EventType = "task"   // a task's state, progress or step changed
	EventWorker EventType = "worker" // a worker's state changed, what it offers, or why it takes nothing
	EventResync EventType = "resync" // events were missed: read the state anew
)

// TaskDetail is the part of a task that a watcher shows.
type TaskDetail struct {
	Attempt  int                `json:"attempt,omitempty"`
	Reason   Reason             `json:"reason,omitempty"`
	Progress *float64           `json:"progress,omitempty"`
	Step     string             `json:"step,omitempty"`
	Metrics  map[string]float64 `json:"metrics,omitempty"`

	Artifacts []Artifact `json:"artifacts,omitempty"` // that it shows while it runs
}
