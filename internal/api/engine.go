package api

import (
	"context"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sched"
)

// Engine is what the API asks of the engine. Every method answers after the
// commit; an Unavailable or StorageFull error means not done and safe to retry.
type Engine interface {
	// Submit accepts a valid, normalized spec. With a key it is idempotent per owner: the same key and
	// digest answer the same job again, another digest is a Conflict.
	Submit(ctx context.Context, s *muster.Spec, by Submitter) (muster.JobID, error)
	// Cancel stops tasks of a job; nil spans mean all of them.
	Cancel(ctx context.Context, job muster.JobID, spans []sched.Span) error
	// Retry queues ended tasks that did not succeed again; nil spans mean all of them.
	Retry(ctx context.Context, job muster.JobID, spans []sched.Span) error
	// Steer pauses, resumes, drains, undrains or removes a worker.
	Steer(ctx context.Context, w muster.WorkerID, what Steering) error
	Explain(ctx context.Context, t muster.TaskID) (sched.Explanation, error)
	// Plan says where the first task of each stage would run if it were submitted now.
	Plan(ctx context.Context, s *muster.Spec) ([]sched.Explanation, error)
	// Workers lists all workers with what is only in memory: free resources, load.
	Workers(ctx context.Context) ([]muster.Worker, error)
}

// Submitter is who submits, and under which idempotency key.
type Submitter struct {
	Owner  string
	Key    string // "" for none
	Digest string
}

// Steering is what an administrator does to a worker.
type Steering string

// The steerings.
const (
	SteerPause  Steering = "pause"
	SteerResume Steering = "resume" // also takes a drain back
	SteerDrain  Steering = "drain"
	SteerRemove Steering = "remove"
)
