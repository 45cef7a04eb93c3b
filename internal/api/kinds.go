package api

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/auth"
)

// Kinds is what the API asks of the catalog of kinds.
type Kinds interface {
	// Admit tells what is wrong with how the stages of a job use their kinds. Into a stage that is right it writes what its kind
	// says where the stage says nothing of that sort. workers is asked only if need be; its error is passed on.
	Admit(s *muster.Spec, workers func() ([]muster.Worker, error)) ([]muster.FieldError, error)
	// List returns all kinds by name, with how many of the workers have each.
	List(workers []muster.Worker) []wire.Kind
}

func (s *server) kindRoutes() {
	handle(s, route{id: "list-kinds", method: http.MethodGet, path: apiPath("/kinds"), tag: "kinds",
		summary: "List the kinds of tasks, and how many workers offer each", verb: auth.ReadWorkers}, s.listKinds)
	handle(s, route{id: "get-kind", method: http.MethodGet, path: apiPath("/kinds/{kind}"), tag: "kinds",
		summary: "Show what a kind of tasks takes as input, and who offers it", verb: auth.ReadWorkers}, s.getKind)
}

type listKindsInput struct {
	Own bool `query:"own" doc:"only those that owners of workers added"`
}

func (s *server) listKinds(ctx context.Context, in *listKindsInput) (*response[wire.Kinds], error) {
	workers, err := s.Engine.Workers(ctx)
	if err != nil {
		return nil, err
	}
	list := slices.DeleteFunc(s.Kinds.List(workers), func(k wire.Kind) bool { return in.Own && !k.Own })
	for i := range list {
		list[i].Workers = nil
	}
	return respond(wire.Kinds{Kinds: nonNil(list)}), nil
}

type kindPath struct {
	Kind string `path:"kind" maxLength:"64"`
}

func (s *server) getKind(ctx context.Context, in *kindPath) (*response[wire.Kind], error) {
	workers, err := s.Engine.Workers(ctx)
	if err != nil {
		return nil, err
	}
	list := s.Kinds.List(workers)
	names := make([]string, len(list))
	for i, k := range list {
		if k.Name == in.Kind {
			return respond(k), nil
		}
		names[i] = k.Name
	}
	hint := "there are " + strings.Join(names, ", ")
	if nearest := muster.Nearest(in.Kind, names); nearest != "" {
		hint = "did you mean " + nearest + "?"
	}
	return nil, muster.Errorf(muster.NotFound, "there is no kind %q: %s", in.Kind, hint)
}
