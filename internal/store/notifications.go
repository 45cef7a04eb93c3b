package store

import (
	"context"

	"github.com/muster-dev/muster"
)

// NotificationStore stores what notifications by webhook need. Commit records each end of a job that has notifications in its
// spec or in its project, in the transaction that ends the job: JobEnds returns it until EnqueueDeliveries processes it.
type NotificationStore interface {
	ProjectNotify(ctx context.Context, project string) ([]muster.Notify, error)
	// SetProjectNotify replaces the notifications of a project.
	SetProjectNotify(ctx context.Context, project string, list []muster.Notify) error
	// JobEnds lists the oldest ends that were not processed, at most limit.
	JobEnds(ctx context.Context, limit int) ([]JobEnd, error)
	// EnqueueDeliveries removes ends, records idle jobs, and adds deliveries, in one transaction.
	EnqueueDeliveries(ctx context.Context, x EnqueueBatch) error
	// WatchedJobs lists the jobs that have not ended and have a notification of a long wait, by number, after the given one, at most limit.
	// The end of a job removes its IdleJob.
	WatchedJobs(ctx context.Context, after muster.JobID, limit int) ([]WatchedJob, error)
}

// DeliveryStore is the queue and the log of requests to webhooks.
type DeliveryStore interface {
	// Due lists pending deliveries that are due, without those with ids in busy: at most perQueue for each host and project, the oldest first.
	// next is when the next later one is due, or 0.
	Due(ctx context.Context, now muster.Time, perQueue int, busy map[int64]bool) (due []Delivery, next muster.Time, err error)
	// RecordAttempts updates deliveries after an attempt, or adds those with ID 0, and drops all but the last MaxFinalDeliveries final ones of
	// each of their projects.
	RecordAttempts(ctx context.Context, list []Delivery) error
	// Deliveries lists the log, newest first, without bodies.
	Deliveries(ctx context.Context, q DeliveryQuery) (list []Delivery, next string, err error)
}

const (
	// MaxFinalDeliveries is how many deliveries that are not pending are kept for a project.
	MaxFinalDeliveries = 1_000
	// MaxPendingDeliveries is how many deliveries of a project may be pending. EnqueueDeliveries adds further ones as failed.
	MaxPendingDeliveries = 10_000
)

// JobEnd is one end of a job. A job that is retried ends several times.
type JobEnd struct {
	ID    int64 // grows
	Job   muster.JobID
	State muster.JobState
	At    muster.Time
}

// EnqueueBatch is one transaction of EnqueueDeliveries.
type EnqueueBatch struct {
	ProcessedEnds []int64 // ids of ends
	Idle          []IdleJob
	Deliveries    []Delivery // to add, with ID 0
}

// IdleJob records since when no task of a job runs. Since 0 means that a task runs, or that the job has ended.
type IdleJob struct {
	Job          muster.JobID
	Since        muster.Time
	NotifiedWait muster.Duration // the longest wait that was notified
}

// WatchedJob is a job and its IdleJob.
type WatchedJob struct {
	Job  muster.Job // without Spec and Groups
	Idle IdleJob
}

// Delivery is one request to a webhook, which may take several attempts.
type Delivery struct {
	ID        int64
	Message   string // identifies the message to the receiver, the same for each attempt
	Project   string
	Job       muster.JobID // 0 for a test
	Event     string       // such as job.failed
	URL       string
	Host      string // with the port
	Preset    string
	Secret    string // as in muster.Notify
	Body      []byte
	Headers   map[string]string
	CreatedAt muster.Time

	Attempts    int
	NextAt      muster.Time // 0 if it is not pending
	AttemptedAt muster.Time // of the last attempt
	Status      int         // HTTP status of the last attempt, or 0
	Error       string      // why the last attempt failed
	Latency     muster.Duration
	Delivered   bool
	FinishedAt  muster.Time // when it was delivered or failed
}

// DeliveryQuery selects deliveries, newest first.
type DeliveryQuery struct {
	Project string       // any if ""
	Job     muster.JobID // any if 0
	State   string       // pending, delivered or failed; any if ""
	Cursor  string
	Limit   int
}

// The states of a Delivery.
const (
	DeliveryPending   = "pending"
	DeliveryDelivered = "delivered"
	DeliveryFailed    = "failed"
)

// State returns the state of the delivery.
func (d *Delivery) State() string {
	switch {
	case d.NextAt != 0:
		return DeliveryPending
	case d.Delivered:
		return DeliveryDelivered
	default:
		return DeliveryFailed
	}
}

// UpperBound checks the query and returns the id below which all its deliveries are.
func (q *DeliveryQuery) UpperBound() (int64, error) {
	jobs := JobQuery{Cursor: q.Cursor, Limit: q.Limit}
	n, err := jobs.UpperBound()
	return int64(n), err
}
