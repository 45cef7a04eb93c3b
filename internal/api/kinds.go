package api

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/rest"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/store"
)

// Kinds is the catalog of kinds.
type Kinds interface {
	// Admit validates how the stages of a job use their kinds, and sets the kinds' defaults in valid stages. It calls workers
	// only if needed and returns its error.
	Admit(s *muster.Spec, workers func() ([]muster.Worker, error)) ([]muster.FieldError, error)
	// List returns all kinds by name, with the number of workers that have each.
	List(workers []muster.Worker) []wire.Kind
}

func (s *server) kindRoutes() {
	rest.Handle(s.router, rest.Route{ID: "list-kinds", Method: http.MethodGet, Path: rest.Path("/kinds"), Tag: "kinds",
		Summary: "List kinds of tasks and how many workers offer each", Verb: auth.ReadWorkers}, s.listKinds)
	rest.Handle(s.router, rest.Route{ID: "get-kind", Method: http.MethodGet, Path: rest.Path("/kinds/{kind}"), Tag: "kinds",
		Summary: "Show the input of a kind of tasks and the workers that offer it", Verb: auth.ReadWorkers}, s.getKind)
}

type listKindsInput struct {
	Own bool `query:"own" doc:"only custom kinds of workers"`
}

func (s *server) listKinds(ctx context.Context, in *listKindsInput) (*rest.Response[wire.Kinds], error) {
	workers, err := s.Engine.Workers(ctx)
	if err != nil {
		return nil, err
	}
	list := slices.DeleteFunc(s.Kinds.List(workers), func(k wire.Kind) bool { return in.Own && !k.Own })
	for i := range list {
		list[i].Workers = nil
	}
	return rest.Respond(wire.Kinds{Kinds: nonNil(list)}), nil
}

type kindPath struct {
	Kind string `path:"kind" maxLength:"64"`
}

func (s *server) getKind(ctx context.Context, in *kindPath) (*rest.Response[wire.Kind], error) {
	workers, err := s.Engine.Workers(ctx)
	if err != nil {
		return nil, err
	}
	list := s.Kinds.List(workers)
	names := make([]string, len(list))
	for i, k := range list {
		if k.Name == in.Kind {
			return rest.Respond(k), nil
		}
		names[i] = k.Name
	}
	hint := "known kinds are " + strings.Join(names, ", ")
	if nearest := muster.Nearest(in.Kind, names); nearest != "" {
		hint = "did you mean " + nearest + "?"
	}
	return nil, muster.Errorf(muster.NotFound, "there is no kind %q: %s", in.Kind, hint)
}

// Engine accepts and answers requests about jobs and workers. Every method returns after the
// commit; an Unavailable or StorageFull error means not done and safe to retry.
type Engine interface {
	// Submit accepts a valid, normalized spec for by.Owner. With by.Key it is idempotent for that owner: the
	// same key and digest return the same job, another digest is a Conflict.
	Submit(ctx context.Context, s *muster.Spec, by store.IdempotencyKey) (muster.JobID, error)
	// Cancel stops tasks of a job; nil spans mean all of them.
	Cancel(ctx context.Context, job muster.JobID, spans []muster.Span) error
	// Retry queues finished tasks that did not succeed; nil spans mean all of them.
	Retry(ctx context.Context, job muster.JobID, spans []muster.Span) error
	// Steer pauses, resumes, drains, heals or removes a worker.
	Steer(ctx context.Context, w muster.WorkerID, o muster.AdminRequest) error
	Explain(ctx context.Context, t muster.TaskID) (muster.Explanation, error)
	// Plan explains where the first task of each stage would run if the job were submitted now.
	Plan(ctx context.Context, s *muster.Spec) ([]muster.Explanation, error)
	// Health returns why the engine cannot work now, or nil. It is cheap.
	Health() error
	// Workers lists all workers, including their state in memory: free resources, load.
	Workers(ctx context.Context) ([]muster.Worker, error)
}

// JobEditor changes jobs. Its methods return after the commit, as those of Engine do.
type JobEditor interface {
	// Rerun is Engine.Submit for a job that takes the results of an earlier one for the stages before one of them.
	Rerun(ctx context.Context, spec *muster.Spec, by store.IdempotencyKey, of muster.JobID, from string) (muster.JobID, error)
	// Edit changes the priority of a job that has not ended, and holds or releases it; nil leaves a property as it is.
	Edit(ctx context.Context, job muster.JobID, priority *int, held *bool) error
}
