package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/cache"
	"github.com/muster-dev/muster/internal/api/rest"
	"github.com/muster-dev/muster/internal/api/streaming"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/history"
	"github.com/muster-dev/muster/internal/overview"
	"github.com/muster-dev/muster/internal/sched"
	"github.com/muster-dev/muster/internal/store"
)

// Fleet reads the state of all workers and all work from the engine. Callers must not modify the results.
type Fleet interface {
	Fleet(ctx context.Context) (*sched.FleetSnapshot, error)
	Workload(ctx context.Context, project string) (sched.Workload, error)
}

// Views are the sources of the overview, the history and whole jobs.
type Views struct {
	Fleet   Fleet
	History History
	Jobs    store.SummaryReader
	Disk    func() overview.Disk // of the server's data directory; it returns at once
}

// How long parts of an overview are cached.
const (
	pictureTTL = time.Second
	failingTTL = 10 * time.Second
)

// maxOverviews is the number of cached answers.
const maxOverviews = 100

// overviewCache caches the parts of overviews, so that many viewers cost as much as one.
type overviewCache struct {
	picture cache.Value[*sched.FleetSnapshot]
	failing cache.Value[[]store.FailingName]
	disk    cache.Value[overview.Disk]

	encoded cache.Values[overviewKey, encodedPage]
}

// overviewKey identifies an answer.
type overviewKey struct {
	project string // of the caller's key, or ""
	gpus    bool
}

// encodedPage is an encoded answer.
type encodedPage []byte

func (s *server) overviewRoutes() {
	rest.Stream(s.router, rest.Route{ID: "get-overview", Method: http.MethodGet, Path: rest.Path("/overview"), Tag: "fleet", Verb: auth.ReadWorkers, JSONType: reflect.TypeFor[wire.Overview](),
		Summary: "Show the fleet's capacity and use, tasks by state, GPUs, cost, and what needs attention, up to two seconds old. " +
			"A key for one project sees only tasks and jobs of that project"}, s.getOverview)
	rest.Handle(s.router, rest.Route{ID: "get-history", Method: http.MethodGet, Path: rest.Path("/history"), Tag: "fleet", Verb: auth.ReadWorkers,
		Summary: "Show the load of the fleet or of a worker over time: every 10 seconds for the last hour, every minute for 12 hours, every 10 minutes for a week. " +
			"A key for one project does not see the fleet's task counts"}, s.getHistory)
}

type overviewInput struct {
	GPUs string `query:"gpus" enum:"true,false" default:"true" doc:"false omits the list of devices"`
}

func (s *server) getOverview(w http.ResponseWriter, r *http.Request, in *overviewInput) error {
	key := overviewKey{principalOf(r.Context()).Project, in.GPUs != "false"}
	encoded, err := s.overviewCache.encoded.Value(key).Get(r.Context(), pictureTTL, func(ctx context.Context) (encodedPage, error) {
		facts, err := s.overviewFacts(ctx, key)
		if err != nil {
			return nil, err
		}
		return encode(overview.Build(facts))
	})
	if err != nil {
		return err
	}
	encoded.write(w, r)
	return nil
}

func encode(v any) (encodedPage, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	return append(text, '\n'), nil
}

// writeJSON answers with v.
func writeJSON(w http.ResponseWriter, r *http.Request, v any) error {
	page, err := encode(v)
	if err == nil {
		page.write(w, r)
	}
	return err
}

// write answers with a page.
func (p encodedPage) write(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = streaming.NewWriter(w, r).Write(p) // a caller who left does not read it
}

// overviewFacts gathers the input of an overview.
func (s *server) overviewFacts(ctx context.Context, key overviewKey) (*overview.Input, error) {
	f := &overview.Input{Project: key.project, Version: s.Version, WithGPUs: key.gpus}
	var err error
	if f.Fleet, err = s.overviewCache.picture.Get(ctx, pictureTTL, s.Views.Fleet.Fleet); err != nil {
		return nil, err
	}
	f.Workload = f.Fleet.All
	if key.project != "" {
		if f.Workload, err = s.Views.Fleet.Workload(ctx, key.project); err != nil {
			return nil, err
		}
	}
	if q := f.Workload.Oldest; q != nil {
		x, err := s.Engine.Explain(ctx, q.Task)
		switch {
		case err == nil:
			f.OldestReason = x.Summary
		case muster.CodeOf(err) != muster.NotFound: // it has ended meanwhile
			return nil, err
		}
	}
	if f.Failing, err = s.overviewCache.failing.Get(ctx, failingTTL, func(ctx context.Context) ([]store.FailingName, error) {
		return s.Views.Jobs.FailingNames(ctx, overview.FailingStreak)
	}); err != nil {
		return nil, err
	}
	if s.Gateways != nil {
		f.Gateways = s.Gateways()
	}
	f.Disk, err = s.overviewCache.disk.Get(ctx, failingTTL, func(context.Context) (overview.Disk, error) { return s.Views.Disk(), nil })
	return f, err
}

// History stores the load of the fleet and its workers over time.
type History interface {
	Query(now muster.Time, q history.Query) wire.History
}

// resolveWorkerID finds a worker as resolveWorker does. For an id it asks the engine at most once a second.
func (s *server) resolveWorkerID(ctx context.Context, idOrName string) (muster.WorkerID, error) {
	p, err := s.overviewCache.picture.Get(ctx, pictureTTL, s.Views.Fleet.Fleet)
	if err != nil {
		return "", err
	}
	if slices.ContainsFunc(p.Workers, func(w sched.WorkerSnapshot) bool { return w.ID == muster.WorkerID(idOrName) }) {
		return muster.WorkerID(idOrName), nil
	}
	w, err := s.resolveWorker(ctx, idOrName)
	return w.ID, err
}

type historyInput struct {
	Worker string    `query:"worker" maxLength:"200" doc:"id, or name if it is unique; absent means the fleet"`
	From   time.Time `query:"from" doc:"default: an hour before to"`
	To     time.Time `query:"to" doc:"default: now"`
	Points int       `query:"points" minimum:"10" maximum:"2000" default:"300" doc:"approximate maximum number of points"`
}

func (s *server) getHistory(ctx context.Context, in *historyInput) (*rest.Response[wire.History], error) {
	q := history.Query{Points: in.Points, From: timeParam(in.From), To: timeParam(in.To)}
	if in.Worker != "" {
		var err error
		if q.Worker, err = s.resolveWorkerID(ctx, in.Worker); err != nil {
			return nil, err
		}
	}
	if q.From != 0 && q.To != 0 && q.From > q.To {
		return nil, muster.Errorf(muster.Invalid, "from is later than to: swap them")
	}
	h := s.Views.History.Query(muster.NewTime(time.Now()), q)
	if principalOf(ctx).Project != "" {
		for _, name := range []string{"waiting", "queued", "running", "finished", "failed"} {
			if q.Worker == "" {
				delete(h.Series, name)
			}
		}
	}
	return rest.Respond(h), nil
}
