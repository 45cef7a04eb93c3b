package muster

// Event is a committed change, as published to subscribers. Seq only grows within
// an Epoch, which identifies one incarnation of the server.
type Event struct {
	Epoch       string      `json:"epoch"`
	Seq         uint64      `json:"seq"`
	Type        EventType   `json:"type"`
	At          Time        `json:"at"`
	Job         JobID       `json:"job,omitempty"`
	Task        *TaskID     `json:"task,omitempty"`
	State       string      `json:"state,omitempty"` // of the subject, after the change
	Worker      WorkerID    `json:"worker,omitempty"`
	Constrained string      `json:"why,omitempty"` // why an unpaused worker accepts no new tasks
	Detail      *TaskDetail `json:"detail,omitempty"`
}

// EventType names what changed.
type EventType string

// The event types.
const (
	EventJob    EventType = "job"    // a job was accepted or its state changed
	EventTask   EventType = "task"   // a task's state, progress or step changed
	EventWorker EventType = "worker" // a worker's state, its offer or its constraint changed
	EventResync EventType = "resync" // events were missed: read the state again
)

// TaskDetail is the part of a task that an event carries.
type TaskDetail struct {
	Attempt  int                `json:"attempt,omitempty"`
	Reason   Reason             `json:"reason,omitempty"`
	Progress *float64           `json:"progress,omitempty"`
	Step     string             `json:"step,omitempty"`
	Metrics  map[string]float64 `json:"metrics,omitempty"`

	Artifacts []Artifact `json:"artifacts,omitempty"` // live artifacts
}
