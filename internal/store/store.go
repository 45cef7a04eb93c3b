// Package store is the contract for what survives a crash: the rows of jobs,
// groups, tasks, attempts, workers and keys. Package storetest holds it as tests;
// every adapter runs them.
//
// There is one writer, the engine; there may be many readers at once. A Commit
// that returned nil is on disk. A Commit that returned an error changed nothing.
package store

import (
	"context"
	"time"

	"github.com/muster-dev/muster"
)

// Writer is what the engine needs.
type Writer interface {
	// Load returns what the scheduler starts from.
	Load(ctx context.Context) (muster.Snapshot, error)
	// Commit writes all rows, and the idempotency keys of new jobs, in one transaction,
	// and drops the keys that are older than these by IdempotencyTTL or more.
	// It returns a StorageFull error if there is no space, and a Conflict if an
	// idempotency key is taken. A task's group, name, kind, element and creation never
	// change, nor do a job's name, project, kind, creation, owner and UID, and a spec is never changed in place.
	Commit(ctx context.Context, b *Batch) error
}

// Batch is one transaction.
type Batch struct {
	muster.Rows
	IdempotencyKeys []IdempotencyKey
}

// IdempotencyTTL is how long a client's key stands for the job that it made.
const IdempotencyTTL = muster.Duration(7 * 24 * time.Hour)

// IdempotencyKey remembers which job a client's key made.
type IdempotencyKey struct {
	Key    string // unique together with Owner
	Owner  string
	Digest string // of the request: another request under the same key is a Conflict
	Job    muster.JobID
	At     muster.Time
}

// Reader is what the API needs. Every list ends: it returns at most Limit rows
// and the cursor to go on from, which is "" at the end.
type Reader interface {
	Job(ctx context.Context, id muster.JobID) (muster.Job, error) // with Spec and Groups; NotFound
	Jobs(ctx context.Context, q JobQuery) ([]muster.Job, string, error)
	// Tasks lists by number. Tasks without rows are made up from their group, so that
	// every task is there.
	Tasks(ctx context.Context, q TaskQuery) ([]muster.Task, string, error)
	Task(ctx context.Context, id muster.TaskID) (muster.Task, error)          // NotFound
	Attempts(ctx context.Context, id muster.TaskID) ([]muster.Attempt, error) // all, the current one too, by number
	Workers(ctx context.Context) ([]muster.Worker, error)                     // by name; Free, Running and Load are not stored
	FindIdempotencyKey(ctx context.Context, owner, key string) (IdempotencyKey, bool, error)
	Contents(ctx context.Context, q ContentQuery) ([]Content, error) // those that are not proven Wrong, the newest job's first; there may be none
}

// MaxLateReports is how many late reports of a job are kept: the first ones.
const MaxLateReports = 100

// LateReportReader are the reports of attempts that had been given up before they came. Commit keeps those of attempts that were
// given to the worker that reports them.
type LateReportReader interface {
	LateReports(ctx context.Context, job muster.JobID) ([]muster.LateReport, error) // by task and attempt; none for unknown jobs
}

// KeyStore is where API keys live.
type KeyStore interface {
	PutKey(ctx context.Context, k Key) error                 // inserts or replaces by EventID; Conflict if another key has the Hash, Unauthenticated if there is no Parent
	KeyByHash(ctx context.Context, hash string) (Key, error) // NotFound; Forbidden for a worker's key that was deleted
	ListKeys(ctx context.Context) ([]Key, error)             // the oldest first
	DeleteKey(ctx context.Context, id string) error          // and those of which it is the Parent; NotFound
}

// Key is one API key. Its secret is nowhere: Hash is the SHA-256 of it, in hex.
type Key struct {
	ID        string
	Name      string
	Hash      string
	Role      string          // of package auth
	Project   string          // "" means all
	Job       muster.JobID    // the only one that it may read; 0 means all
	Worker    muster.WorkerID // for a worker's own key
	Parent    string          // the key that made it and with which it is deleted; "" for none
	CreatedAt muster.Time
	ExpiresAt muster.Time // 0 means never
}

// JobQuery selects jobs, by number: the newest first, or the oldest.
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
	OldestFirst bool              // first
	Cursor      string
	Limit       int
}

// TaskQuery selects tasks of one job by number.
type TaskQuery struct {
	Job        muster.JobID
	States     []muster.TaskState // any if empty
	Spans      []Span             // any if empty
	StoredOnly bool               // only those with rows of their own: none is made up
	Cursor     string
	Limit      int
}

// Span is the task numbers First to Last.
type Span struct{ First, Last int }
