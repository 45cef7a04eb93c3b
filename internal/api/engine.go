package api

import (
	"context"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/store"
)

// Engine is what the API asks of the engine. Every method answers after the
// commit; an Unavailable or StorageFull error means not done and safe to retry.
type Engine interface {
	// Submit accepts a valid, normalized spec for by.Owner. With by.Key it is idempotent for that owner: the
	// same key and digest answer the same job again, another digest is a Conflict.
	Submit(ctx context.Context, s *muster.Spec, by store.IdempotencyKey) (muster.JobID, error)
	// Cancel stops tasks of a job; nil spans mean all of them.
	Cancel(ctx context.Context, job muster.JobID, spans []muster.Span) error
	// Retry queues ended tasks that did not succeed again; nil spans mean all of them.
	Retry(ctx context.Context, job muster.JobID, spans []muster.Span) error
	// Steer pauses, resumes, drains, heals or removes a worker.
	Steer(ctx context.Context, w muster.WorkerID, o muster.AdminRequest) error
	Explain(ctx context.Context, t muster.TaskID) (muster.Explanation, error)
	// Plan says where the first task of each stage would run if it were submitted now.
	Plan(ctx context.Context, s *muster.Spec) ([]muster.Explanation, error)
	// Health says why the engine cannot do its work now, or nil. It costs nothing.
	Health() error
	// Workers lists all workers with what is only in memory: free resources, load.
	Workers(ctx context.Context) ([]muster.Worker, error)
}
