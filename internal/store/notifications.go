package store

import (
	"context"

	"github.com/muster-dev/muster"
)

// NotificationStore is what notifications by webhook need of the store. Commit notes each end of a job that has notifications in its
// spec or in its project, in the transaction that ends the job: an end that was committed is in Ends until Expand takes it.
type NotificationStore interface {
	// ProjectNotify returns the notifications of a project, none if it has none. SetProjectNotify replaces them.
	ProjectNotify(ctx context.Context, project string) ([]muster.Notify, error)
	SetProjectNotify(ctx context.Context, project string, list []muster.Notify) error
	// JobEnds lists the oldest ends that were not taken, at most limit.
	JobEnds(ctx context.Context, limit int) ([]JobEnd, error)
	// EnqueueDeliveries takes ends and records idle jobs, and adds the deliveries that they ask for, in one transaction.
	EnqueueDeliveries(ctx context.Context, x EnqueueBatch) error
	// WatchedJobs lists the jobs that have not ended and have a notification of their long wait, by number, those after one, at most limit.
	// The end of a job removes its Idle.
	WatchedJobs(ctx context.Context, after muster.JobID, limit int) ([]WatchedJob, error)
}

// DeliveryStore is the queue and the log of requests to webhooks.
type DeliveryStore interface {
	// Due lists pending deliveries whose time has come, at most so many for each host and project by that time, leaving out those with ids in
	// busy, and says when the next one is due that is later, 0 for none.
	Due(ctx context.Context, now muster.Time, perQueue int, busy map[int64]bool) (due []Delivery, next muster.Time, err error)
	// RecordAttempts updates deliveries after an attempt, or adds one with EventID 0, and drops all but the last MaxFinalDeliveries final ones of
	// each of their projects.
	RecordAttempts(ctx context.Context, list []Delivery) error
	// Deliveries lists the log, newest first, without bodies.
	Deliveries(ctx context.Context, q DeliveryQuery) (list []Delivery, next string, err error)
}

const (
	// MaxFinalDeliveries is how many deliveries of a project are kept that are not pending.
	MaxFinalDeliveries = 1_000
	// MaxPendingDeliveries is how many deliveries of a project may be pending. Expand adds further ones as given up.
	MaxPendingDeliveries = 10_000
)

// JobEnd is one end of a job. A job that is retried ends several times.
type JobEnd struct {
	ID    int64 // grows
	Job   muster.JobID
	State muster.JobState
	At    muster.Time
}

// EnqueueBatch is what came of ends and waits.
type EnqueueBatch struct {
	ProcessedEnds []int64 // ids of ends
	Idle          []IdleJob
	Deliveries    []Delivery // to add, with EventID 0
}

// IdleJob is since when no task of a job runs. Since 0 means that one does, or that the job has ended.
type IdleJob struct {
	Job          muster.JobID
	Since        muster.Time
	NotifiedWait muster.Duration // the longest wait that was notified
}

// WatchedJob is a job and since when it is known to be idle.
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
	NextAt      muster.Time // 0: it is not pending
	AttemptedAt muster.Time // of the last attempt
	Status      int         // of the last answer; 0 for none
	Error       string      // why the last attempt failed
	Latency     muster.Duration
	Delivered   bool
	FinishedAt  muster.Time // when it was delivered or given up
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

// State returns the state of a delivery.
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

// UpperBound checks the query and returns the id that all its deliveries are below.
func (q *DeliveryQuery) UpperBound() (int64, error) {
	jobs := JobQuery{Cursor: q.Cursor, Limit: q.Limit}
	n, err := jobs.UpperBound()
	return int64(n), err
}
