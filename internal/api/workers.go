package api

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"sort"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/rest"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/auth"
)

func (s *server) workerRoutes() {
	at := rest.Path("/workers/{worker}")
	rest.Handle(s.router, rest.Route{ID: "list-workers", Method: http.MethodGet, Path: rest.Path("/workers"), Tag: "workers",
		Summary: "List workers", Verb: auth.ReadWorkers}, s.listWorkers)
	rest.Handle(s.router, rest.Route{ID: "get-worker", Method: http.MethodGet, Path: at, Tag: "workers",
		Summary: "Show a worker", Verb: auth.ReadWorkers}, s.getWorker)
	steerRoute := func(do muster.AdminAction, summary string) rest.Route {
		return rest.Route{ID: string(do) + "-worker", Method: http.MethodPost, Path: at + "/" + string(do), Tag: "workers",
			Summary: summary, Verb: auth.ManageWorkers}
	}
	rest.Handle(s.router, steerRoute(muster.ActionDrain, "Drain a worker: it finishes its tasks and leaves; tasks that still run at the deadline are moved to other workers"), s.drainWorker)
	rest.Handle(s.router, steerRoute(muster.ActionPause, "Pause a worker: it gets no new tasks, for a time or until it is resumed. It stays paused while it is unreachable or gone"), s.pauseWorker)
	rest.Handle(s.router, steerRoute(muster.ActionResume, "Resume a worker: end its pause or drain"), s.resumeWorker)
	rest.Handle(s.router, steerRoute(muster.ActionApprove, "Approve a worker that waits for it: it takes tasks"), s.approveWorker)
	rest.Handle(s.router, steerRoute(muster.ActionHeal, "Check a worker's quarantined GPUs again and release the healthy ones"), s.healWorker)
	rest.Handle(s.router, rest.Route{ID: "reset-worker", Method: http.MethodPost, Path: at + "/reset", Tag: "workers",
		Summary: "Revoke the key of a worker, and make a join token for one hour with which it joins again under its id, with a new key; it is returned only once", Verb: auth.ManageWorkers, Status: http.StatusCreated}, s.resetWorker)
	rest.Handle(s.router, rest.Route{ID: "remove-worker", Method: http.MethodDelete, Path: at, Tag: "workers",
		Summary: "Delete a disconnected or pending worker and revoke its key", Verb: auth.ManageWorkers}, s.removeWorker)
}

// WorkerPath is a worker in a path.
type WorkerPath struct {
	Worker string `path:"worker" maxLength:"200" doc:"id, or name if it is unique"`
}

type listWorkersInput struct {
	Cursor string   `query:"cursor" maxLength:"200" doc:"next of the previous page"`
	Limit  int      `query:"limit" minimum:"1" maximum:"1000" doc:"maximum number of rows; absent means all"`
	ID     []string `query:"id,explode" maxItems:"200" doc:"only these workers"`
	View   string   `query:"view" enum:"full,basic" default:"full" doc:"basic omits kinds, allow, lacks, projects, and the GPUs of free and load"`
}

// listWorkers lists workers by id.
func (s *server) listWorkers(ctx context.Context, in *listWorkersInput) (*rest.Response[wire.Workers], error) {
	all, err := s.Engine.Workers(ctx)
	if err != nil {
		return nil, err
	}
	from := 0
	if in.Cursor != "" {
		from = sort.Search(len(all), func(i int) bool { return string(all[i].ID) > in.Cursor })
	}
	var list wire.Workers
	for _, w := range all[from:] {
		if len(in.ID) > 0 && !slices.Contains(in.ID, string(w.ID)) {
			continue
		}
		if in.Limit > 0 && len(list.Workers) == in.Limit {
			list.Next = string(list.Workers[in.Limit-1].ID)
			break
		}
		w.Tasks = nil
		if in.View == "basic" {
			w = basicView(w)
		}
		list.Workers = append(list.Workers, w)
	}
	list.Workers = nonNil(list.Workers)
	return rest.Respond(list), nil
}

// basicView returns a worker without its largest fields. It shares the rest.
func basicView(w muster.Worker) muster.Worker {
	w.Kinds, w.Allow, w.UnsupportedFeatures, w.Projects = nil, nil, nil, nil
	if w.Free != nil {
		free := *w.Free
		free.GPUs, w.Free = nil, &free
	}
	if w.Load != nil {
		w.Load = &muster.Load{CPU: w.Load.CPU, Memory: w.Load.Memory, Disk: w.Load.Disk}
	}
	return w
}

func (s *server) getWorker(ctx context.Context, in *WorkerPath) (*rest.Response[muster.Worker], error) {
	w, err := s.resolveWorker(ctx, in.Worker)
	if err != nil {
		return nil, err
	}
	if w.Tasks, err = s.readableTasks(ctx, w.Tasks); err != nil {
		return nil, err
	}
	slices.SortFunc(w.Tasks, func(a, b muster.TaskID) int { return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.Num, b.Num)) })
	return rest.Respond(w), nil
}

// readableTasks returns those of a worker's tasks whose jobs the caller may read, in a list of its own.
func (s *server) readableTasks(ctx context.Context, ids []muster.TaskID) ([]muster.TaskID, error) {
	p := principalOf(ctx)
	var list []muster.TaskID
	for _, id := range ids {
		if p.Project != "" || p.Job != 0 {
			project, err := s.projectOf(ctx, id.Job)
			if err != nil && muster.CodeOf(err) != muster.NotFound { // it was removed meanwhile
				return nil, err
			}
			if err != nil || auth.Can(p, auth.ReadJobs, auth.Object{Project: project, Job: id.Job}) != nil {
				continue
			}
		}
		list = append(list, id)
	}
	return list, nil
}

// resolveWorker finds a worker by its id, or by its name if it is unique.
func (s *server) resolveWorker(ctx context.Context, idOrName string) (muster.Worker, error) {
	workers, err := s.Engine.Workers(ctx)
	if err != nil {
		return muster.Worker{}, err
	}
	var named []muster.Worker
	for _, w := range workers {
		if w.ID == muster.WorkerID(idOrName) {
			return w, nil
		}
		if w.Name == idOrName {
			named = append(named, w)
		}
	}
	if present := slices.DeleteFunc(slices.Clone(named), func(w muster.Worker) bool { return w.State == muster.WorkerGone }); len(present) > 0 {
		named = present // prefer the worker that took over the name of one that left
	}
	switch len(named) {
	case 1:
		return named[0], nil
	case 0:
		return muster.Worker{}, muster.Errorf(muster.NotFound, "there is no worker %q", idOrName)
	default:
		return muster.Worker{}, muster.Errorf(muster.Conflict, "%d workers are named %q: use the id, such as %s", len(named), idOrName, named[0].ID)
	}
}

type (
	drainInput struct {
		WorkerPath
		Body *wire.Drain
	}
	pauseInput struct {
		WorkerPath
		Body *wire.Pause
	}
	healInput struct {
		WorkerPath
		Body *wire.Heal
	}
)

func (s *server) drainWorker(ctx context.Context, in *drainInput) (*rest.Response[muster.Worker], error) {
	o := muster.AdminRequest{Action: muster.ActionDrain}
	if in.Body != nil {
		o.Timeout = in.Body.Deadline
	}
	return s.steer(ctx, in.Worker, o)
}

func (s *server) pauseWorker(ctx context.Context, in *pauseInput) (*rest.Response[muster.Worker], error) {
	o := muster.AdminRequest{Action: muster.ActionPause}
	if in.Body != nil {
		o.Timeout = in.Body.For
	}
	return s.steer(ctx, in.Worker, o)
}

func (s *server) resumeWorker(ctx context.Context, in *WorkerPath) (*rest.Response[muster.Worker], error) {
	return s.steer(ctx, in.Worker, muster.AdminRequest{Action: muster.ActionResume})
}

func (s *server) approveWorker(ctx context.Context, in *WorkerPath) (*rest.Response[muster.Worker], error) {
	w, err := s.resolveWorker(ctx, in.Worker)
	if err != nil {
		return nil, err
	}
	if err := s.access.Approve(ctx, w.ID); err != nil {
		return nil, err
	}
	return s.steer(ctx, string(w.ID), muster.AdminRequest{Action: muster.ActionApprove})
}

func (s *server) healWorker(ctx context.Context, in *healInput) (*rest.Response[muster.Worker], error) {
	o := muster.AdminRequest{Action: muster.ActionHeal}
	if in.Body != nil {
		o.GPUs = in.Body.GPUs
	}
	return s.steer(ctx, in.Worker, o)
}

// steer performs an action and returns the worker's new state.
func (s *server) steer(ctx context.Context, idOrName string, o muster.AdminRequest) (*rest.Response[muster.Worker], error) {
	w, err := s.resolveWorker(ctx, idOrName)
	if err != nil {
		return nil, err
	}
	if err := s.Engine.Steer(ctx, w.ID, o); err != nil {
		return nil, err
	}
	return s.getWorker(ctx, &WorkerPath{Worker: string(w.ID)})
}

func (s *server) resetWorker(ctx context.Context, in *WorkerPath) (*rest.Response[wire.MadeKey], error) {
	w, err := s.resolveWorker(ctx, in.Worker)
	if err != nil {
		return nil, err
	}
	made, err := s.access.ResetWorker(ctx, &w)
	return rest.Respond(made), err
}

func (s *server) removeWorker(ctx context.Context, in *WorkerPath) (*struct{}, error) {
	w, err := s.resolveWorker(ctx, in.Worker)
	if err != nil {
		return nil, err
	}
	if err := s.Engine.Steer(ctx, w.ID, muster.AdminRequest{Action: muster.ActionRemove}); err != nil {
		return nil, err
	}
	return nil, s.access.RevokeWorker(ctx, w.ID)
}
