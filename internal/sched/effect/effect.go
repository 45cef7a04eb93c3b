// Package effect is what the scheduler's decisions lead to. It is pure.
package effect

import (
	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sched/gang"
)

// Effects is what follows from decisions: rows to commit, and, once they are
// committed, words to workers and events to publish, each in order.
type Effects struct {
	Rows     muster.Rows
	Commands []Command
	Events   []muster.Event // Epoch and Seq are the publisher's

	// Progress is what rows of running tasks do not have yet, in order. Rows of the same Effects are newer.
	Progress []Progress

	Entered         muster.Counts    // how many tasks came into each state, those of new jobs included
	AttemptsStarted []AttemptStarted // in order
	AttemptsEnded   []AttemptEnded   // in order
	JobsEnded       []JobEnded       // in order
}

// JobEnded is a job that ended. It may be tried again.
type JobEnded struct {
	Job       muster.JobID
	UID       string
	Name      string
	State     muster.JobState
	CreatedAt muster.Time
	At        muster.Time
}

// AttemptStarted is an attempt whose task started, for those who count attempts.
type AttemptStarted struct {
	Attempt        muster.AttemptID
	AssignedAt, At muster.Time
}

// AttemptEnded is an attempt that ended, for those who count and trace attempts.
type AttemptEnded struct {
	Attempt muster.AttemptID
	UID     string           // of the job
	Spec    *muster.TaskSpec // the stage's
	Worker  muster.WorkerID
	Outcome muster.Outcome
	Reason  muster.Reason
	Usage   *muster.Usage // nil if the worker did not report it

	QueuedAt, AssignedAt, StartedAt, At muster.Time // StartedAt is 0 if it never started
}

// Progress is the latest progress of an attempt, whole.
type Progress struct {
	Task     muster.TaskID
	Attempt  int
	Progress *float64
	Step     string
	Metrics  map[string]float64
}

// Command is a word to a worker. The set is closed.
//
//sumtype:decl
type Command interface {
	command()
	To() muster.WorkerID
}

// Assign offers an attempt to a worker.
type Assign struct {
	Worker  muster.WorkerID
	Attempt muster.AttemptID
	UID     string // of the job
	Group   int
	Element int // position in the group, from 0
	Grant   muster.Grant
	Spec    *muster.TaskSpec // the group's; ${index} and ${matrix…} are not bound yet
	Inputs  []Input          // artifacts that must be in the task's folder before it starts

	Checkpoint string           // the tree that an earlier attempt saved, or ""
	Gang       *gang.Membership // of a member of a gang

	QueuedAt, At muster.Time // when the task was queued and when it was assigned, for those who count attempts
}

// Input is an artifact of an earlier stage and where it lands in the task's
// folder.
type Input struct {
	Path   string // slash-separated, relative
	SHA256 string
	Size   int64
}

// Stop tells a worker to end an attempt: gracefully for Cancelled, also if the
// task is to go on elsewhere (Reason says why), and to drop a copy that is no longer the current
// one for Lost (no report is awaited then).
type Stop struct {
	Worker  muster.WorkerID
	Attempt muster.AttemptID
	Outcome muster.Outcome
	Reason  muster.Reason
}

// Drained tells a drained worker that it holds nothing any more and may go.
type Drained struct{ Worker muster.WorkerID }

// Heal tells a worker to look at quarantined GPUs again.
type Heal struct {
	Worker muster.WorkerID
	GPUs   []string // UUIDs
}

func (Assign) command()  {}
func (Stop) command()    {}
func (Drained) command() {}
func (Heal) command()    {}

// To returns the worker that the word is for.
func (s Assign) To() muster.WorkerID { return s.Worker }

// To returns the worker that the word is for.
func (s Stop) To() muster.WorkerID { return s.Worker }

// To returns the worker that the word is for.
func (s Drained) To() muster.WorkerID { return s.Worker }

// To returns the worker that the word is for.
func (s Heal) To() muster.WorkerID { return s.Worker }
