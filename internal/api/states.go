package api

import (
	"context"
	"net/http"
	"reflect"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/rest"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/store"
)

func (s *server) stateRoutes() {
	rest.Stream(s.router, rest.Route{ID: "get-job-states", Method: http.MethodGet, Path: rest.Path("/jobs/{job}/states"), Tag: "jobs", Shared: true, Verb: auth.ReadJobs, JSONType: reflect.TypeFor[wire.States](),
		Summary: "Show the state of every task of a job in a compact form (run-length encoded)"}, s.getStates)
	rest.Handle(s.router, rest.Route{ID: "get-job-usage", Method: http.MethodGet, Path: rest.Path("/jobs/{job}/usage"), Tag: "jobs", Shared: true, Verb: auth.ReadJobs,
		Summary: "Show the total usage of a job's finished attempts"}, s.getJobUsage)
	rest.Handle(s.router, rest.Route{ID: "get-previous-job", Method: http.MethodGet, Path: rest.Path("/jobs/{job}/previous"), Tag: "jobs", Verb: auth.ReadJobs,
		Summary: "Show the newest older job of the same project and name, with its spec and stages"}, s.getPrevious)
}

type statesInput struct {
	rest.JobPath
	From int `query:"from" minimum:"0" maximum:"10000000" doc:"number of the first task in the answer; default: 0"`
	To   int `query:"to" minimum:"0" maximum:"10000000" default:"10000000" doc:"number of the last task; default: all"`
}

func (s *server) getStates(w http.ResponseWriter, r *http.Request, in *statesInput) error {
	states := wire.States{Job: in.ID(), Seq: s.Events.LastID(), At: muster.NewTime(time.Now())} // read before the states: later events may be in both
	for _, st := range muster.TaskStates {
		states.States = append(states.States, st.String())
	}
	release, err := s.acquireStates(r.Context(), in.ID())
	if err != nil {
		return err
	}
	job, groups, err := s.Views.Jobs.TaskStates(r.Context(), in.ID(), store.Span{First: in.From, Last: in.To})
	release() // before a slow client reads the answer
	if err != nil {
		return err
	}
	states.Stages = make([]wire.StageStates, len(groups))
	for i := range groups {
		states.Stages[i] = stageStates(&job, &job.Groups[i], &groups[i])
	}
	return writeJSON(w, r, &states)
}

// limitedStatesTasks is the number of tasks from which a request for states is limited: the store has few readers, and large jobs take long.
const limitedStatesTasks = 10_000

// acquireStates waits for the limiter if a job is large. The caller must call release.
func (s *server) acquireStates(ctx context.Context, id muster.JobID) (release func(), err error) {
	job, err := s.Store.Job(ctx, id)
	if err != nil {
		return nil, err
	}
	if job.Counts.Total() < limitedStatesTasks {
		return func() {}, nil
	}
	return s.chartLimiter.acquire(ctx)
}

func stageStates(job *muster.Job, g *muster.Group, s *store.GroupStates) wire.StageStates {
	stage := wire.StageStates{
		Name: g.Name, Index: g.Index, First: g.First, Size: g.Size, Needs: []string{}, Counts: g.Counts, StartedAt: g.StartedAt, FinishedAt: g.FinishedAt, From: s.From, Length: len(s.States),
	}
	if job.Spec != nil && g.Index < len(job.Spec.Tasks) {
		spec := &job.Spec.Tasks[g.Index]
		stage.Needs, stage.Kind = nonNil(spec.Needs), spec.Kind
	}
	stage.Runs, stage.Packed = wire.EncodeStates(s.States)
	return stage
}

func (s *server) getJobUsage(ctx context.Context, in *rest.JobPath) (*rest.Response[wire.JobUsage], error) {
	job, err := s.Store.Job(ctx, in.ID())
	if err != nil {
		return nil, err
	}
	u := &job.Usage
	return rest.Respond(wire.JobUsage{
		Job: job.ID, Cost: job.Cost, EnergyWh: u.EnergyWh, CPUSeconds: u.CPUSeconds, GPUSeconds: u.GPUSeconds, WallSeconds: u.WallSeconds,
		MemoryPeak: u.MemoryPeak, Attempts: u.Attempts,
	}), nil
}

func (s *server) getPrevious(ctx context.Context, in *rest.JobPath) (*rest.Response[muster.Job], error) {
	previous, err := s.Views.Jobs.PreviousJob(ctx, in.ID())
	if err != nil {
		return nil, err
	}
	if err := s.router.AuthorizeJob(ctx, previous.ID, auth.ReadJobs); err != nil {
		return nil, err
	}
	return s.showJob(ctx, previous.ID)
}
