package wire

import "github.com/muster-dev/muster"

// Metrics are what the attempts of a task reported over time.
type Metrics struct {
	Task     muster.TaskID    `json:"task"`
	State    muster.TaskState `json:"state" doc:"of the task"`
	Attempts []AttemptMetrics `json:"attempts" nullable:"false" doc:"by number: the last 20, or the one that was asked for"`
}

// AttemptMetrics are what one attempt reported over time.
type AttemptMetrics struct {
	Attempt     int            `json:"attempt"`
	Outcome     muster.Outcome `json:"outcome,omitempty" doc:"absent while it runs"`
	StartedAt   muster.Time    `json:"started_at,omitzero"`
	FinishedAt  muster.Time    `json:"finished_at,omitzero"`
	Taken       int            `json:"taken" doc:"how many points were kept; more than there are in points if those are thinned"`
	Points      []muster.Point `json:"points" nullable:"false" doc:"in order of time; a point has only what was reported since the point before. Two points stand for several if there are more than was asked for: they have the lowest and the highest value of each metric"`
	Checkpoints []muster.Time  `json:"checkpoints" nullable:"false" doc:"when its checkpoint was saved: at most 1000 of these times"`
}
