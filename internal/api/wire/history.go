package wire

import "github.com/muster-dev/muster"

// History is how the fleet, or one worker, was loaded over time.
type History struct {
	Worker muster.WorkerID       `json:"worker,omitempty"`
	From   muster.Time           `json:"from"`
	To     muster.Time           `json:"to"`
	Step   int                   `json:"step" doc:"seconds between two points; each point is the mean of the step that begins at its time"`
	Times  []muster.Time         `json:"times" nullable:"false"`
	Series map[string][]*float64 `json:"series" nullable:"false" doc:"one list for each figure, with a number or null for each of times"`
}
