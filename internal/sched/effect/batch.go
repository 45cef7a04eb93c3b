package effect

import (
	"time"

	"github.com/muster-dev/muster"
)

// Batch is the result of one batch of events, for metrics and traces. It is immutable.
type Batch struct {
	Began     time.Time
	Decided   time.Time
	Committed time.Time // zero if there was nothing to commit
	Events    int       // including refused ones
	Submitted []Submitted
	Failed    bool // the commit failed: nothing of it took effect
	Effects   Effects
}

// Submitted is a job that a batch accepted.
type Submitted struct {
	Job  muster.JobID
	UID  string
	Spec *muster.Spec
	At   time.Time // when the request arrived
}
