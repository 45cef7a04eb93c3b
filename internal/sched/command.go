package sched

import (
	"time"

	"github.com/muster-dev/muster"
)

// Effects is what the scheduler decided: rows to commit and, after the commit,
// commands to workers and events to publish, each in order.
type Effects struct {
	Rows     muster.Rows
	Commands []Command
	Events   []muster.Event // Epoch and Seq are the publisher's

	// Progress is progress of running tasks that is not in Rows, in order. Rows of the same Effects are newer.
	Progress []Progress

	Entered         muster.Counts    // how many tasks entered each state, including those of new jobs
	AttemptsStarted []AttemptStarted // in order
	AttemptsEnded   []AttemptEnded   // in order
	JobsEnded       []JobEnded       // in order
}

// JobEnded is a job that ended. It may be retried later.
type JobEnded struct {
	Job       muster.JobID
	UID       string
	Name      string
	State     muster.JobState
	CreatedAt muster.Time
	At        muster.Time
}

// AttemptStarted is an attempt that started, for metrics.
type AttemptStarted struct {
	Attempt        muster.AttemptID
	AssignedAt, At muster.Time
}

// AttemptEnded is an attempt that ended, for metrics and traces.
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

// Progress is the latest progress of an attempt.
type Progress struct {
	Task     muster.TaskID
	Attempt  int
	Progress *float64
	Step     string
	Metrics  map[string]float64
}

// Command is a message to a worker. The set is closed.
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
	Project string // of the job
	Group   int
	Element int // position in the group, from 0
	Grant   muster.Grant
	Spec    *muster.TaskSpec   // the group's; ${index} and ${matrix…} are not bound yet
	Inputs  []muster.InputFile // artifacts for the task's folder

	Signature *muster.Signature // of the job, or nil

	Checkpoint string             // tree that an earlier attempt saved, or ""
	Gang       *muster.Membership // of a member of a gang

	QueuedAt, At muster.Time // when the task was queued and assigned, for metrics
}

// Stop tells a worker to end an attempt. The outcome Cancelled asks for a graceful stop
// and a report, also for a preempted task that will run elsewhere. Lost drops an attempt
// that is no longer current, without a report.
type Stop struct {
	Worker  muster.WorkerID
	Attempt muster.AttemptID
	Outcome muster.Outcome
	Reason  muster.Reason
}

// Drained tells a draining worker that it has no tasks left and may exit.
type Drained struct{ Worker muster.WorkerID }

// HealGPUs tells a worker to check quarantined GPUs again.
type HealGPUs struct {
	Worker muster.WorkerID
	GPUs   []string // UUIDs
}

func (Assign) command()   {}
func (Stop) command()     {}
func (Drained) command()  {}
func (HealGPUs) command() {}

// To returns the addressed worker.
func (s Assign) To() muster.WorkerID { return s.Worker }

// To returns the addressed worker.
func (s Stop) To() muster.WorkerID { return s.Worker }

// To returns the addressed worker.
func (s Drained) To() muster.WorkerID { return s.Worker }

// To returns the addressed worker.
func (s HealGPUs) To() muster.WorkerID { return s.Worker }

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
