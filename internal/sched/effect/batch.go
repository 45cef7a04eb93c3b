package effect

import (
	"time"

	"github.com/muster-dev/muster"
)

// Batch is what became of one batch of events, for those who measure and trace the engine. What
// it holds is not changed any more.
type Batch struct {
	Began     time.Time
	Decided   time.Time
	Committed time.Time // zero if there was nothing to commit
	Events    int       // that were decided, refused ones included
	Submitted []Submitted
	Failed    bool // the commit failed: nothing of it happened
	Effects   Effects
}

// Submitted is a job that a batch accepted.
type Submitted struct {
	Job  muster.JobID
	UID  string
	Spec *muster.Spec
	At   time.Time // when the engine was asked
}
