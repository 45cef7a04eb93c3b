package muster

// Point is a task's progress report at one time. Absent fields were not reported again.
type Point struct {
	At         Time               `json:"at,omitzero"`
	Progress   *float64           `json:"progress,omitempty"` // 0 to 1
	Step       *string            `json:"step,omitempty"`
	Metrics    map[string]float64 `json:"metrics,omitempty"`
	Checkpoint bool               `json:"checkpoint,omitempty"` // its checkpoint was saved on the server
}
