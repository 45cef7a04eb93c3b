package store

import (
	"context"
	"encoding/json"
	"time"

	"github.com/muster-dev/muster"
)

// JobLogOverhead is the estimated space of a job's directories for logs. That of its attempts is part of muster.JobUsage.LogBytes.
const JobLogOverhead muster.Size = 8 << 10

// RetentionEngine is how retention changes what the engine owns. Each call is one transaction, in order with all other changes, and
// leaves out what must stay: callers need not exclude races with retries and keeps. A call may do only a first part of a long list,
// at least one element: callers repeat it with the rest. All methods are safe for concurrent use.
type RetentionEngine interface {
	// Now is the time that ends and ages are measured with. It does not jump when the clock of the machine is set.
	Now() muster.Time
	// RemoveJobs removes ended jobs for all readers; RemovalStore.DeleteRemoved deletes the rest of their rows later. It leaves out
	// jobs that are live, kept or unknown. done is how many ids of the list it has decided about.
	RemoveJobs(ctx context.Context, ids []muster.JobID) (removed []muster.JobID, done int, err error)
	// ExpireLogs records that the logs of ended jobs are deleted, and moves their files away. It leaves out jobs that are live, kept
	// or unknown.
	ExpireLogs(ctx context.Context, ids []muster.JobID) (expired []muster.JobID, done int, err error)
	// ExpireArtifacts records that the artifacts and checkpoints of ended jobs are deleted. It leaves out jobs that are live, kept
	// or unknown, and those whose artifacts expired before.
	ExpireArtifacts(ctx context.Context, ids []muster.JobID) (expired []muster.JobID, done int, err error)
	// RemoveDeparted removes workers that have left. It leaves out those that are unknown or have come back.
	RemoveDeparted(ctx context.Context, ids []muster.WorkerID) (removed []muster.WorkerID, err error)
}

// RemovableJob is what decides whether a job, its logs or its artifacts may be deleted.
type RemovableJob struct {
	ID      muster.JobID
	Project string
	State   muster.JobState
	Counts  muster.Counts
	Groups  int // number of its stages
	EndedAt muster.Time
	// LogBytes is the estimated space of its logs, without JobLogOverhead; 0 after they expired.
	LogBytes muster.Size
	muster.JobRetention
}

// EndedJob is an ended job in the order of its end.
type EndedJob struct {
	ID       muster.JobID
	EndedAt  muster.Time
	LogBytes muster.Size // with JobLogOverhead; 0 if it has no logs
	Tasks    int64
	Kept     bool
}

// EndedQuery selects ended jobs of one project, by the time of their end and their number.
type EndedQuery struct {
	Project string
	Logs    bool     // only jobs that have logs
	After   EndedJob // only those after it; the zero value means all
	Limit   int      // at least 1
}

// EndedTotal counts what a project has of ended jobs that are not kept.
type EndedTotal struct {
	Jobs        int64
	Logs        int64       // jobs that have logs
	LogBytes    muster.Size // with JobLogOverhead
	LateReports int64
}

// LateEntry is a late report of an ended job that is not kept.
type LateEntry struct {
	Attempt muster.AttemptID
	At      muster.Time
	Project string
}

// RetentionReader reads what policies decide about. Each call is a transaction of its own.
type RetentionReader interface {
	// RetentionProjects lists the projects that have jobs, by name.
	RetentionProjects(ctx context.Context) ([]string, error)
	// EndedTotals takes time in proportion to the project's ended jobs: call it only for limits of number and size.
	EndedTotals(ctx context.Context, project string) (EndedTotal, error)
	EndedJobs(ctx context.Context, q EndedQuery) ([]EndedJob, error)
	// OldestLateReports lists late reports of all projects by time and attempt, from the one after the given one.
	OldestLateReports(ctx context.Context, after LateEntry, limit int) ([]LateEntry, error)
	// ExistingJobs returns those of some jobs that exist, by number.
	ExistingJobs(ctx context.Context, ids []muster.JobID) ([]RemovableJob, error)
}

// PolicyStore stores the policies of projects, whose form is of package retention.
type PolicyStore interface {
	ProjectPolicies(ctx context.Context) (map[string]json.RawMessage, error)
	// SetProjectPolicy replaces the policy of a project, a JSON object; nil deletes it.
	SetProjectPolicy(ctx context.Context, project string, policy json.RawMessage) error
	// RetentionStart returns when the default policies begin to apply (0: always did), and when the last pass was (0: never).
	RetentionStart(ctx context.Context) (start, lastPass muster.Time, err error)
	SetLastPass(ctx context.Context, at muster.Time) error
}

// RemovalStore deletes rows that no reader and no decision of the engine sees, in transactions beside the engine's. Each call returns
// how long it kept the engine from writing: callers keep their batches small and pause in proportion.
type RemovalStore interface {
	// RemovedJobs lists removed jobs that still have rows, by number, from the one after the given one; oldest is when the first one
	// of all was removed, or 0. They include those that were removed before a restart.
	RemovedJobs(ctx context.Context, after muster.JobID, limit int) (ids []muster.JobID, oldest muster.Time, err error)
	// DeleteRemoved deletes at most limit rows of removed jobs, job by job. The caller has deleted the logs of these jobs:
	// after it, nothing remembers those that are done.
	DeleteRemoved(ctx context.Context, ids []muster.JobID, limit int) (Removed, error)
	// DeleteLateReports deletes late reports. It leaves out those of jobs that are live or kept.
	DeleteLateReports(ctx context.Context, ids []muster.AttemptID) (deleted int, held time.Duration, err error)
	// DeleteKeys deletes at most limit API keys that expired before a time, and the keys of workers that do not exist any more, among
	// those given. A worker whose key was deleted may join again; one whose key was revoked may not.
	DeleteKeys(ctx context.Context, expiredBefore muster.Time, workers []muster.WorkerID, limit int) (deleted int, held time.Duration, err error)
	// DropGrants deletes all grants of blobs for which exists returns false, which it calls inside the transaction: a blob that
	// is uploaded is stored before it is granted.
	DropGrants(ctx context.Context, sha256 []string, exists func(sha256 string) bool) (held time.Duration, err error)
	// DropWorkerGrants deletes at most limit grants of workers that do not exist any more.
	DropWorkerGrants(ctx context.Context, limit int) (deleted int, held time.Duration, err error)
}

// Removed is what one call of DeleteRemoved deleted.
type Removed struct {
	Jobs  int // the first ones of the list, which have no rows left
	Tasks int64
	Rows  int // of all tables
	Held  time.Duration
}

// BlobRef is one row's references to blobs. Expired artifacts and the checkpoints of tasks that succeeded are no references.
type BlobRef struct {
	Job     muster.JobID
	Task    muster.TaskID // zero for a job's spec
	Attempt int           // 0 for a spec and for the row of a task
	Project string
	Blobs   []Blob   // a size of 0 may be unknown
	Trees   []string // SHA-256 of a muster.Tree, whose files are references, too
	EndedAt muster.Time
	Kept    bool
}

// BlobRefReader lists all references to blobs, by key and page by page. A page may be short or empty: it ends with next, the key to continue
// after; done means that there are no more.
//
// A reference moves only from a worker's upload to its task, to an attempt, or to a late report, and from a schedule to its jobs. So a reader that calls
// WorkerBlobs, ScheduleBlobs, SpecBlobs, TaskBlobs, AttemptBlobs and LateBlobs in this order, each to its end, sees each reference that existed when it began and still exists.
type BlobRefReader interface {
	// UnfinishedSince returns when the oldest unfinished attempt of each worker that has one was assigned. Its uploads since then may
	// not be reported yet.
	UnfinishedSince(ctx context.Context) (map[muster.WorkerID]muster.Time, error)
	// WorkerBlobs lists blobs that were granted to a worker at a time or later, or by an older Muster, by hash, from the one after the given one.
	WorkerBlobs(ctx context.Context, w muster.WorkerID, since muster.Time, after string, limit int) ([]string, error)
	// ScheduleBlobs lists the files and standard inputs in the specs of schedules, without a job.
	ScheduleBlobs(ctx context.Context, after ScheduleID, limit int) (page []BlobRef, next ScheduleID, done bool, err error)
	// SpecBlobs lists the files and standard inputs in the specs of all jobs.
	SpecBlobs(ctx context.Context, after muster.JobID, limit int) (page []BlobRef, next muster.JobID, done bool, err error)
	TaskBlobs(ctx context.Context, after muster.TaskID, limit int) (page []BlobRef, next muster.TaskID, done bool, err error)
	AttemptBlobs(ctx context.Context, after muster.AttemptID, limit int) (page []BlobRef, next muster.AttemptID, done bool, err error)
	LateBlobs(ctx context.Context, after muster.AttemptID, limit int) (page []BlobRef, next muster.AttemptID, done bool, err error)
	// GrantedBlobs lists blobs that have grants, by hash, from the one after the given one.
	GrantedBlobs(ctx context.Context, after string, limit int) ([]string, error)
}
