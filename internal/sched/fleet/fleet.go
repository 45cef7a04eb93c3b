// Package fleet has snapshots of the workers and of the work, for dashboards and metrics. It is pure.
package fleet

import "github.com/muster-dev/muster"

// Snapshot is all workers and what needs attention in the live jobs.
type Snapshot struct {
	At      muster.Time
	Workers []Worker // by id
	Failing []Job    // live jobs with at least MinFailures failed attempts, newest first, at most MaxFailedScanned
	All     Workload // of all projects
}

// Worker is one worker with what is kept in memory only.
type Worker struct {
	ID            muster.WorkerID
	Name          string
	State         muster.WorkerState
	Version       string
	Price         float64           // per hour
	Offers        *muster.Resources // must not be changed
	Reserved      Resources         // granted to its tasks
	GPUTasks      []int             // tasks on each of Offers.GPUs
	Running       int               // tasks that it holds
	Load          *muster.Load      // at its last heartbeat, or nil; must not be changed
	Constrained   string            // why the worker takes no tasks
	Avoided       string            // why the scheduler assigns it no tasks
	Deadline      muster.Time       // when a drain stops what still runs, or a pause ends; 0 for never
	CleanShutdown bool              // it left in an orderly shutdown
	SeenAt        muster.Time
}

// Connected reports whether the worker is connected.
func (w *Worker) Connected() bool {
	return w.State != muster.WorkerUnreachable && w.State != muster.WorkerGone
}

// Resources is an amount of what workers offer.
type Resources struct {
	Slots     int
	CPUs      float64
	Memory    muster.Size
	GPUs      int // devices that are used as a whole or in part
	GPUMemory muster.Size
}

// Limits of Snapshot.Failing.
const (
	MinFailures = 3
	MaxFailing  = 1_000
)

// Job is a live job whose attempts keep failing.
type Job struct {
	ID       muster.JobID
	Name     string
	Project  string
	Failures int // failed attempts since the server started, and earlier ones that its rows count
}

// Workload is the tasks of one project, or of all.
type Workload struct {
	Counts muster.Counts // of all stored tasks
	Rate   Rate          // over the last minute
	Total  Total         // since the server started
	Oldest *Oldest       // nil if none is queued
}

// Rate is transitions per second.
type Rate struct{ Started, Finished, Failed float64 }

// Total is numbers of transitions.
type Total struct{ Started, Finished, Failed int64 }

// Oldest is the task that has been queued for longest.
type Oldest struct {
	Task     muster.TaskID
	Name     string // of the job
	QueuedAt muster.Time
}

// GPULoad returns the last reading of one of Offers.GPUs, or nil.
func (w *Worker) GPULoad(i int) *muster.GPULoad {
	if w.Load == nil {
		return nil
	}
	gpus, uuid := w.Load.GPUs, w.Offers.GPUs[i].UUID
	if i < len(gpus) && gpus[i].UUID == uuid { // usually the order is the same
		return &gpus[i]
	}
	for j := range gpus {
		if gpus[j].UUID == uuid {
			return &gpus[j]
		}
	}
	return nil
}
