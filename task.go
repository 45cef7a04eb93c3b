package muster

import "encoding/json"

// Task is the state of one task, as stored and as the API shows it. What
// belongs to an execution (worker, times, outcome, grant) is that of the current
// attempt, or of the last one.
type Task struct {
	ID         TaskID             `json:"id"`
	Job        JobID              `json:"job"`
	Index      int                `json:"index"` // the number in ID
	Group      int                `json:"group"`
	Name       string             `json:"name"`
	Kind       string             `json:"kind"`
	Element    string             `json:"element,omitempty"` // of an array or matrix: "7", "lr=0.1,seed=2"
	State      TaskState          `json:"state"`
	Reason     Reason             `json:"reason,omitempty"`
	Message    string             `json:"message,omitempty"`
	ExitCode   *int               `json:"exit_code,omitempty"`
	Attempt    int                `json:"attempt,omitempty"` // number of the current or last attempt; 0 means none yet
	Retried    int                `json:"retried,omitempty"` // retries counted against retries.max
	Crashes    int                `json:"crashes,omitempty"` // attempts lost by the fleet's fault
	Worker     WorkerID           `json:"worker,omitempty"`
	Grant      *Grant             `json:"grant,omitempty"`
	Progress   *float64           `json:"progress,omitempty"` // 0 to 1
	Step       string             `json:"step,omitempty"`
	Metrics    map[string]float64 `json:"metrics,omitempty"`
	Result     json.RawMessage    `json:"result,omitempty"`
	Artifacts  []Artifact         `json:"artifacts,omitempty"`
	Usage      *Usage             `json:"usage,omitempty"`
	LogSize    int64              `json:"log_size,omitempty"` // bytes of the last attempt's finished log
	CreatedAt  Time               `json:"created_at,omitzero"`
	QueuedAt   Time               `json:"queued_at,omitzero"`
	NotBefore  Time               `json:"not_before,omitzero"` // a retry waits until then
	AssignedAt Time               `json:"assigned_at,omitzero"`
	StartedAt  Time               `json:"started_at,omitzero"`
	FinishedAt Time               `json:"finished_at,omitzero"`
	Made       bool               `json:"-"` // made up from its group when it was read: it has no row of its own
}

// Attempt is one execution of a task: the history row of those that ended
// without ending their task, and the API's view of all.
type Attempt struct {
	ID         AttemptID  `json:"id"`
	Worker     WorkerID   `json:"worker,omitempty"`
	Outcome    Outcome    `json:"outcome,omitempty"` // empty while it is open
	Reason     Reason     `json:"reason,omitempty"`
	Message    string     `json:"message,omitempty"`
	ExitCode   *int       `json:"exit_code,omitempty"`
	Artifacts  []Artifact `json:"artifacts,omitempty"`
	Usage      *Usage     `json:"usage,omitempty"`
	LogSize    int64      `json:"log_size,omitempty"`
	AssignedAt Time       `json:"assigned_at,omitzero"`
	StartedAt  Time       `json:"started_at,omitzero"`
	FinishedAt Time       `json:"finished_at,omitzero"`
}

// Usage is what an attempt consumed.
type Usage struct {
	WallSeconds float64 `json:"wall_seconds"`
	CPUSeconds  float64 `json:"cpu_seconds"`
	CPUAvg      float64 `json:"cpu_avg"`               // cores
	MemoryPeak  Size    `json:"memory_peak,omitempty"` // of the largest process; absent where it was less than the worker's own
}

// Report is how a worker says that an attempt ended.
type Report struct {
	Attempt    AttemptID       `json:"attempt"`
	Outcome    Outcome         `json:"outcome"` // never Open
	Reason     Reason          `json:"reason,omitempty"`
	Message    string          `json:"message,omitempty"`
	ExitCode   *int            `json:"exit_code,omitempty"`
	Result     json.RawMessage `json:"result,omitempty"`
	Artifacts  []Artifact      `json:"artifacts,omitempty"`
	Usage      *Usage          `json:"usage,omitempty"`
	LogSize    int64           `json:"log_size,omitempty"`
	StartedAt  Time            `json:"started_at,omitzero"` // absent if it never started
	FinishedAt Time            `json:"finished_at"`
}

// Progress is a sign of life from inside a task. Absent fields are unchanged.
type Progress struct {
	Attempt  AttemptID          `json:"attempt"`
	Progress *float64           `json:"progress,omitempty"` // 0 to 1
	Step     *string            `json:"step,omitempty"`
	Metrics  map[string]float64 `json:"metrics,omitempty"`
}
