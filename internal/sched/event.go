package sched

import (
	"github.com/muster-dev/muster"
)

// Event is an input of State.Apply. The set is closed.
//
//sumtype:decl
type Event interface{ event() }

// Submit accepts a job. Spec is valid and normalized, and ID is State.NextJob.
type Submit struct {
	ID    muster.JobID
	UID   string // globally unique
	Spec  *muster.Spec
	Owner string

	Reused map[int]Reused // stages that take the results of an earlier job, by number
}

// Reused is a stage of an earlier job that has succeeded: its tasks by number, and its resolved spec, which may be nil.
type Reused struct {
	Tasks    []muster.Task
	Resolved *muster.TaskSpec
}

// Cancel stops the tasks of a job in Tasks, or all of them if Tasks is nil. Ended tasks
// do not change. It is a Conflict if there is no task to cancel.
type Cancel struct {
	Job   muster.JobID
	Tasks []muster.Span
}

// Edit changes the priority of a live job unless Priority is nil, and holds or releases it unless Held is nil. Tasks of a held
// job are not assigned, and their queue timeouts restart at its release; what runs continues.
type Edit struct {
	Job      muster.JobID
	Priority *int
	Held     *bool
}

// Retry queues ended tasks that did not succeed. Job, Groups and Ended are their stored
// rows (the job may have left memory); Unmaterialized includes the ended tasks without
// rows of their own. The rows must be those of the last commit, with nothing applied
// since: read them between two batches.
type Retry struct {
	Job            muster.Job // with Spec
	Groups         []muster.Group
	Ended          []muster.Task // rows to retry
	Kept           []muster.Task // other finished rows of retained groups and from the cursor on, as in a Snapshot
	Unmaterialized bool
}

// JobRemoved removes an ended job with its stored counts from those of its project. It is a Conflict if the job is live or has changes that are
// not flushed.
type JobRemoved struct {
	Job     muster.JobID
	Project string
	Counts  muster.Counts
}

// Joined is a worker that connected, for the first time or again. Held lists the
// attempts that it still runs or whose reports it still keeps. State.Reconcile returns
// afterwards which of them it may keep. Constrained is as in Ready.
type Joined struct {
	Worker      muster.Worker
	Held        []muster.AttemptID
	Stale       []muster.AttemptID // other attempts that it still has processes or output of
	Constrained string
}

// Ready reports whether a worker takes tasks: Constrained is why it does not, or "".
type Ready struct {
	Worker      muster.WorkerID
	Constrained string
}

// Disconnected is a worker whose connection ended. Its leases continue.
type Disconnected struct{ Worker muster.WorkerID }

// ShutDown is a worker that said goodbye: it runs nothing.
type ShutDown struct{ Worker muster.WorkerID }

// Renewed is a heartbeat: it renews the leases of Held, which lists all attempts of the
// worker. An attempt assigned longer ago than Config.AssignGrace that is not listed is lost.
type Renewed struct {
	Worker muster.WorkerID
	Load   *muster.Load
	Held   []muster.AttemptID
}

// Offered is a new description of a connected worker.
type Offered struct {
	Worker muster.WorkerID
	muster.Offer
}

// Pause stops or resumes assigning tasks to a worker. A pause ends at Until, unless
// that is 0; a pause with an end is a Conflict on a draining worker.
type Pause struct {
	Worker muster.WorkerID
	On     bool
	Until  muster.Time
}

// Drain lets a worker finish its tasks and leave, or cancels that. What still runs at
// Until, unless that is 0, is preempted. A drain replaces a pause that has an end.
type Drain struct {
	Worker muster.WorkerID
	On     bool
	Until  muster.Time
}

// Approve lets a pending worker take tasks. It changes nothing of others.
type Approve struct{ Worker muster.WorkerID }

// Quarantine shows why the identity of a worker is not accepted, until its next session.
type Quarantine struct {
	Worker muster.WorkerID
	Reason string
}

// Heal asks a worker to check quarantined GPUs again: those named by UUID or index, or
// all if GPUs is empty.
type Heal struct {
	Worker muster.WorkerID
	GPUs   []string
}

// Remove removes a worker that is unreachable, gone or pending, or with Departed only one that is gone; its attempts are lost.
type Remove struct {
	Worker   muster.WorkerID
	Departed bool
}

// Accepted confirms that a worker will run the attempt.
type Accepted struct {
	Worker  muster.WorkerID
	Attempt muster.AttemptID
}

// Rejected reports that a worker will not run the attempt now. Constrained means that
// the worker takes no tasks at all until it is Ready.
type Rejected struct {
	Worker      muster.WorkerID
	Attempt     muster.AttemptID
	Message     string
	Constrained bool
	Final       bool // the worker would reject this task again
}

// Started implies Accepted.
type Started struct {
	Worker  muster.WorkerID
	Attempt muster.AttemptID
	At      muster.Time
}

// Progressed updates progress, step and metrics, whose values are in range: package link refuses others.
type Progressed struct {
	Worker   muster.WorkerID
	Progress muster.Progress
}

// CheckpointSaved reports the tree that an attempt saved of its checkpoint folder.
type CheckpointSaved struct {
	Worker  muster.WorkerID
	Attempt muster.AttemptID
	SHA256  string
}

// Finished ends an attempt; it implies Accepted, and Started if the report has a start.
// Package link has validated the report. A worker that shuts down returns attempts with
// the outcome lost. A report of an attempt that is not current is a Conflict, and kept
// in Rows.LateReports.
type Finished struct {
	Worker muster.WorkerID
	Report muster.Report
}

// CacheAnswer answers a CacheQuery: Cache is how the task uses the cache, nil if its result cannot be cached; Entry is what the cache has for its
// key, nil for nothing.
type CacheAnswer struct {
	Task  muster.TaskID
	Cache *muster.TaskCache
	Entry *muster.CacheEntry
}

// Tick ends the leases, timeouts and backoffs that are due. It is due at
// State.NextTick, and may come earlier or later.
type Tick struct{}

func (Submit) event()          {}
func (Cancel) event()          {}
func (Edit) event()            {}
func (Retry) event()           {}
func (JobRemoved) event()      {}
func (Joined) event()          {}
func (Ready) event()           {}
func (Offered) event()         {}
func (Disconnected) event()    {}
func (ShutDown) event()        {}
func (Renewed) event()         {}
func (Pause) event()           {}
func (Drain) event()           {}
func (Approve) event()         {}
func (Quarantine) event()      {}
func (Heal) event()            {}
func (Remove) event()          {}
func (Accepted) event()        {}
func (Rejected) event()        {}
func (Started) event()         {}
func (Progressed) event()      {}
func (CheckpointSaved) event() {}
func (Finished) event()        {}
func (CacheAnswer) event()     {}
func (Tick) event()            {}
