// Package explain has the scheduler's explanation of a task's state.
package explain

import (
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/placement"
)

// Explanation says why a task is in its state. The command line, the API and the
// dashboard show the same text.
type Explanation struct {
	Task           muster.TaskID    `json:"task,omitzero"`   // absent in a plan
	Stage          string           `json:"stage,omitempty"` // in a plan: of its first task
	State          muster.TaskState `json:"state"`
	Summary        string           `json:"summary"`            // one sentence
	Ahead          int              `json:"ahead"`              // queued tasks that go first
	Position       int              `json:"position,omitempty"` // in its queue, from 1
	AheadTruncated bool             `json:"beyond,omitempty"`   // there are more ahead: a long queue is not counted in full
	Start          muster.Time      `json:"start,omitzero"`     // estimate, where there is history
	Nearest        string           `json:"nearest,omitempty"`  // the smallest change that would let it start
	NotUntil       muster.Time      `json:"not_until,omitzero"` // a backoff ends
	Waiting        []string         `json:"waiting,omitempty"`  // stages that must succeed first
	Workers        []Verdict        `json:"workers,omitempty"`  // at most MaxVerdicts, nearest first
	More           int              `json:"more,omitempty"`     // workers beyond those
}

// MaxVerdicts is how many workers an Explanation lists.
const MaxVerdicts = 50

// Unschedulable reports whether no worker that has joined can ever run the task.
func (x *Explanation) Unschedulable() bool {
	return strings.HasPrefix(x.Summary, placement.Unschedulable) || x.Summary == placement.NoWorker
}

// Verdict is the first filter that one worker fails, or Fits.
type Verdict struct {
	Worker muster.WorkerID `json:"worker"`
	Name   string          `json:"name"`
	Fits   bool            `json:"fits"`
	Filter string          `json:"filter,omitempty"` // such as "memory"
	Why    string          `json:"why,omitempty"`    // such as "needs 64GiB memory, has 32GiB"
}
