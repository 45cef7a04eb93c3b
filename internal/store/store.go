// Package store is the contract of durable storage: the rows of jobs,
// groups, tasks, attempts, workers and keys. Package storetest tests it for every adapter.
//
// The engine is the only writer; many readers may run at once. A Commit
// that returned nil is on disk. A Commit that returned an error changed nothing.
package store

import (
	"context"
	"net/netip"
	"time"

	"github.com/muster-dev/muster"
)

// Writer is the part of the store that the engine uses.
type Writer interface {
	// Load returns the state that the scheduler starts from.
	Load(ctx context.Context) (muster.Snapshot, error)
	// Commit writes all rows, and the idempotency keys of new jobs, in one transaction,
	// and drops keys that are older than these by IdempotencyTTL or more.
	// It returns a StorageFull error if there is no space, and a Conflict if an
	// idempotency key exists. A task's group, name, kind, element and creation time never
	// change, nor do a job's name, project, kind, creation time, owner and UID, and a spec is never changed in place.
	// ScheduleRuns are added as by RecordRun.
	// It does not write the JobRetention of Jobs: Kept and the Expired lists do.
	Commit(ctx context.Context, b *Batch) error
}

// Batch is one transaction.
type Batch struct {
	muster.Rows
	IdempotencyKeys []IdempotencyKey
	ScheduleRuns    []ScheduleRun // of schedules that submit jobs of this batch
	// RemovedJobs are ended jobs that disappear for all readers, also from Task, Attempts and Contents. The rest of their rows
	// is deleted by RemovalStore. Rows of the same batch do not name them.
	RemovedJobs      []muster.JobID
	Kept             []JobKept
	ExpiredLogs      []muster.JobID // jobs whose logs are deleted
	ExpiredArtifacts []muster.JobID // jobs whose artifacts and checkpoints are deleted
	At               muster.Time    // of the removals and expirations
}

// Empty reports whether there is nothing to write.
func (b *Batch) Empty() bool {
	return b.Rows.Empty() && len(b.IdempotencyKeys)+len(b.ScheduleRuns)+len(b.RemovedJobs)+len(b.Kept)+len(b.ExpiredLogs)+len(b.ExpiredArtifacts) == 0
}

// JobKept sets since when a job is exempt from retention; 0 means that it is not.
type JobKept struct {
	Job muster.JobID
	At  muster.Time
}

// IdempotencyTTL is how long a client's idempotency key is kept.
const IdempotencyTTL = muster.Duration(7 * 24 * time.Hour)

// IdempotencyKey records which job a client submitted with a key.
type IdempotencyKey struct {
	Key    string // unique together with Owner
	Owner  string
	Digest string // of the request: another request under the same key is a Conflict
	Job    muster.JobID
	At     muster.Time
}

// Reader is the part of the store that the API uses. A list returns at most Limit rows
// and the cursor of the next page, which is "" at the end.
type Reader interface {
	Job(ctx context.Context, id muster.JobID) (muster.Job, error) // with Spec and Groups; NotFound
	Jobs(ctx context.Context, q JobQuery) ([]muster.Job, string, error)
	// Tasks lists by number. Tasks without rows are synthesized from their group.
	Tasks(ctx context.Context, q TaskQuery) ([]muster.Task, string, error)
	Task(ctx context.Context, id muster.TaskID) (muster.Task, error)          // NotFound
	Attempts(ctx context.Context, id muster.TaskID) ([]muster.Attempt, error) // all, with the current one, by number
	Workers(ctx context.Context) ([]muster.Worker, error)                     // by name; Free, Running and Load are not stored
	FindIdempotencyKey(ctx context.Context, owner, key string) (IdempotencyKey, bool, error)
	Contents(ctx context.Context, q ContentQuery) ([]Content, error) // without those that are a Mismatch, the newest job's first
}

// MaxLateReports is how many late reports of a job are kept: the first ones.
const MaxLateReports = 100

// LateReportReader reads the reports of attempts that the scheduler had ended before. Commit keeps those of attempts that were
// assigned to the reporting worker.
type LateReportReader interface {
	LateReports(ctx context.Context, job muster.JobID) ([]muster.LateReport, error) // by task and attempt; empty for unknown jobs
}

// KeyStore stores API keys.
type KeyStore interface {
	// PutKeys inserts or replaces by ID, in order, all or none; Conflict if another key has the Hash, Unauthenticated if the Parent is missing.
	PutKeys(ctx context.Context, keys ...Key) error
	KeyByHash(ctx context.Context, hash string) (Key, error) // NotFound; Forbidden for a deleted key of a worker
	ListKeys(ctx context.Context) ([]Key, error)             // the oldest first
	DeleteKey(ctx context.Context, id string) error          // and its children; NotFound
	// QuarantineKeys marks the keys of a worker. PutKeys does not remove the mark.
	QuarantineKeys(ctx context.Context, worker muster.WorkerID, why string) error
	TouchKeys(ctx context.Context, uses []KeyUse) error // sets the last use of the keys that still exist, unless they have a later one
}

// KeyUse is the last use of a key, which is found by its Hash: a rotation moves that to another key.
type KeyUse struct {
	Hash string
	At   muster.Time
	From string // address of the client, or ""
}

// Key is one API key. The secret is not stored: Hash is its SHA-256, in hex.
type Key struct {
	ID        string
	Name      string
	Hash      string
	Prefix    string          // how the secret begins, for recognition, or ""
	Role      string          // of package auth
	Project   string          // "" means all
	Job       muster.JobID    // the only job that it may read; 0 means all
	Worker    muster.WorkerID // for a worker's own key
	Parent    string          // id of the key that created it, and with which it is deleted, or ""
	Rotated   bool            // an old secret of Parent, which works like that key until ExpiresAt
	Subject   string          // of a sign-in: the user's issuer and subject; "" for other keys
	CreatedAt muster.Time
	ExpiresAt muster.Time // 0 means never
	Uses      *int        // how many workers may still join by it; nil means any number
	Bounds    *KeyBounds  // nil means none
	Approval  bool        // the workers that join by it wait for approval; of a worker's own key: the worker does
	JoinedBy  string      // for a worker's own key: id of the key by which it joined

	Quarantined string // for a worker's own key: why it is not accepted; "" if it is

	LastUsedAt   muster.Time // 0 means never, or before this was recorded
	LastUsedFrom string      // address of the client
}

// KeyBounds is what a key is bound to, beside its project. The key of a worker has the bounds of the key by which it joined.
type KeyBounds struct {
	Tags      []string       `json:"tags,omitempty"`      // that workers have by it, and that are reserved for them
	Addresses []netip.Prefix `json:"addresses,omitempty"` // from which it may be used; empty means all
	// Worker is the worker that joins by a join token, in place of a new one: its own key was lost or copied. Its key does not have it.
	Worker muster.WorkerID `json:"worker,omitempty"`
}

// EnrolmentStore lets workers join by keys.
type EnrolmentStore interface {
	// Enroll inserts the key of a worker that joins by the key token, and takes one of its Uses. It is Forbidden if there is none left, and
	// Unavailable if the worker would wait for approval and MaxPending others do. k.Project, Bounds, Approval and JoinedBy become those of the token.
	// It is a Conflict if another worker has, had or may get the id k.Worker, or has it as its name; unless the token is for one worker, whose id k gets.
	// If a worker has joined by the token with the same Hash, Enroll returns its key and takes no use; if by another one, it is a Conflict.
	// It is Forbidden if a key of the worker replaces, which may be "", was revoked or quarantined, unless the token is bound to that worker. A worker
	// that joins by such a token has the JoinedBy of the token, if it has one.
	Enroll(ctx context.Context, token string, replaces muster.WorkerID, k Key) (Key, error)
	// Approve ends the wait of a worker's keys for approval, and their expiry.
	Approve(ctx context.Context, w muster.WorkerID) error
	// BoundTags returns the tags that some key is bound to, in order.
	BoundTags(ctx context.Context) ([]string, error)
}

// MaxPending is how many workers may wait for approval, each for PendingTTL.
const (
	MaxPending = 100
	PendingTTL = muster.Duration(7 * 24 * time.Hour)
)

// JobQuery selects jobs, in order of their numbers.
type JobQuery struct {
	Job         muster.JobID      // only this one; 0 means any
	States      []muster.JobState // any if empty
	Project     string
	Name        string // part of the name
	Kind        string
	Owner       string            // the key that submitted it
	Since       muster.Time       // created then or later; 0 means any time
	Until       muster.Time       // created then or earlier; 0 means any time
	Labels      map[string]string // all of them
	OldestFirst bool
	Cursor      string
	Limit       int
}

// TaskQuery selects tasks of one job by number.
type TaskQuery struct {
	Job        muster.JobID
	States     []muster.TaskState // any if empty
	Spans      []Span             // any if empty
	StoredOnly bool               // only tasks with rows, no synthesized ones
	Cursor     string
	Limit      int
}

// Span is the task numbers First to Last.
type Span struct{ First, Last int }
