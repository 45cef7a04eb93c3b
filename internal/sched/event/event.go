// Package event is what can happen to the scheduler: see sched.State.Apply.
package event

import (
	"encoding/json"

	"github.com/muster-dev/muster"
)

// Event is something that happened, to be decided upon by sched.State.Apply. The set
// is closed.
//
//sumtype:decl
type Event interface{ event() }

// Submit accepts a job. Spec is valid and normalized, and EventID is sched.State.NextJob.
type Submit struct {
	ID    muster.JobID
	UID   string // unique over all jobs that ever were, here and elsewhere
	Spec  *muster.Spec
	Owner string
}

// Cancel stops the tasks of a job in Tasks, or all of them if Tasks is nil.
// Tasks that have ended stay as they are. It is a Conflict if none is left to cancel.
type Cancel struct {
	Job   muster.JobID
	Tasks []Span
}

// Retry queues ended tasks that did not succeed again. Job, Groups and Ended are their rows
// as stored (the job may have left memory); Rest asks for the ended tasks
// without rows of their own, too. The rows must be those of the last commit, with nothing
// applied since: read them between two batches.
type Retry struct {
	Job            muster.Job // with Spec
	Groups         []muster.Group
	Ended          []muster.Task // rows to retry
	Kept           []muster.Task // other finished rows of Kept groups and from Next on, as in a Snapshot
	Unmaterialized bool
}

// Joined is a worker that connected, for the first time or again. Held lists
// the attempts that it still runs or whose reports it still keeps. sched.State.Keep
// says afterwards which of them it may keep. Constrained is as in Ready.
type Joined struct {
	Worker      muster.Worker
	Held        []muster.AttemptID
	Stale       []muster.AttemptID // others of which it still has processes or output
	Constrained string
}

// Ready is a worker that says whether it takes tasks: Constrained is why not,
// and "" if it does.
type Ready struct {
	Worker      muster.WorkerID
	Constrained string
}

// Disconnected is a worker whose connection ended. Its leases run on.
type Disconnected struct{ Worker muster.WorkerID }

// ShutDown is a worker that said goodbye: it runs nothing any more.
type ShutDown struct{ Worker muster.WorkerID }

// Renewed is a heartbeat: it renews the leases of the attempts Held, which are
// all that the worker has. An attempt that the scheduler believes running on it for longer than
// sched.Config.Settle and that is not among them is lost.
type Renewed struct {
	Worker muster.WorkerID
	Load   *muster.Load
	Held   []muster.AttemptID
}

// Offered is a worker that describes itself anew while it is connected.
type Offered struct {
	Worker    muster.WorkerID
	Tags      []string
	Kinds     []string
	OwnKinds  json.RawMessage
	Resources muster.Resources
	Allow     *muster.Allow
	Lacks     []string
	Projects  []string
}

// Pause stops or resumes giving tasks to a worker. A pause ends by itself at
// Until, unless that is 0; on a worker that drains such a one is a Conflict.
type Pause struct {
	Worker muster.WorkerID
	On     bool
	Until  muster.Time
}

// Drain lets a worker finish what it has and takes it out of service, or takes
// that back. What still runs at Until, unless that is 0, is preempted. A pause
// that would have ended by itself is over.
type Drain struct {
	Worker muster.WorkerID
	On     bool
	Until  muster.Time
}

// Heal asks a worker to look at quarantined GPUs again: those named by UUID or
// index, or all if none is.
type Heal struct {
	Worker muster.WorkerID
	GPUs   []string
}

// Remove forgets a worker that is unreachable or gone; what it held is lost.
type Remove struct{ Worker muster.WorkerID }

// Accepted is a worker's word that it will run the attempt.
type Accepted struct {
	Worker  muster.WorkerID
	Attempt muster.AttemptID
}

// Rejected is a worker's word that it will not; another one, or the same later,
// may. Constrained means that the worker takes nothing for now, whatever the task:
// it is asked again as soon as it is Ready.
type Rejected struct {
	Worker      muster.WorkerID
	Attempt     muster.AttemptID
	Message     string
	Constrained bool
}

// Started implies Accepted.
type Started struct {
	Worker  muster.WorkerID
	Attempt muster.AttemptID
	At      muster.Time
}

// Progressed updates progress, step and metrics.
type Progressed struct {
	Worker   muster.WorkerID
	Progress muster.Progress
}

// CheckpointSaved notes which tree the attempt has saved of its checkpoint folder.
type CheckpointSaved struct {
	Worker  muster.WorkerID
	Attempt muster.AttemptID
	SHA256  string
}

// Finished ends an attempt; it implies Accepted, and Started if the report says
// so. The report is one that package link lets pass. With the outcome lost a worker hands the attempt back, as it
// does when it is shut down. A report of an attempt that is not the task's current one is a Conflict,
// and kept in Rows.Late.
type Finished struct {
	Worker muster.WorkerID
	Report muster.Report
}

// Tick lets time pass: leases, timeouts and backoffs that end by now. It is due
// at sched.State.Wake, and may come earlier or later.
type Tick struct{}

func (Submit) event()          {}
func (Cancel) event()          {}
func (Retry) event()           {}
func (Joined) event()          {}
func (Ready) event()           {}
func (Offered) event()         {}
func (Disconnected) event()    {}
func (ShutDown) event()        {}
func (Renewed) event()         {}
func (Pause) event()           {}
func (Drain) event()           {}
func (Heal) event()            {}
func (Remove) event()          {}
func (Accepted) event()        {}
func (Rejected) event()        {}
func (Started) event()         {}
func (Progressed) event()      {}
func (CheckpointSaved) event() {}
func (Finished) event()        {}
func (Tick) event()            {}
