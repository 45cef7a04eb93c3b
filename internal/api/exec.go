package api

import (
	"cmp"
	"net/http"
	"slices"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/execwire"
	"github.com/muster-dev/muster/internal/link"
)

// Exec relays commands between clients and workers.
type Exec interface {
	// Serve serves a WebSocket until the command ends. It returns an error only if it has not replied.
	Serve(w http.ResponseWriter, r *http.Request, t execwire.Target) error
}

func (s *server) execRoutes(mux *http.ServeMux) {
	stream(s, route{id: "exec-task", method: http.MethodGet, path: apiPath("/tasks/{task}/exec"), tag: "tasks", verb: auth.ExecTasks,
		summary: "Execute a command in a running task, or copy its files, over a WebSocket"}, s.execTask)
	if s.Exec != nil {
		mux.Handle(link.PathExec, s.LinkExec)
		mux.Handle(link.PathExecPoll, s.LinkExecPoll)
	}
}

// isExec reports whether a path belongs to commands in tasks, which end with an error as their last frame.
func isExec(path string) bool {
	return strings.HasPrefix(path, wire.Prefix+"/tasks/") && strings.HasSuffix(path, "/exec")
}

func (s *server) execTask(w http.ResponseWriter, r *http.Request, in *TaskPath) error {
	ctx := r.Context()
	t, err := s.Store.Task(ctx, in.id)
	if err != nil {
		return err
	}
	job, err := s.Store.Job(ctx, in.id.Job)
	if err != nil {
		return err
	}
	p := principalOf(ctx)
	owner := cmp.Or(job.Owner, "none") // an empty one would mean any
	if err := auth.Authorize(p, auth.ExecTasks, auth.Object{Project: job.Project, Job: job.ID, Owner: owner}); err != nil {
		return err
	}
	switch {
	case t.State.Final():
		return muster.Errorf(muster.Conflict, "task %s has ended (%s): commands run only in running tasks", t.ID, t.State)
	case t.StartedAt == 0 || t.Worker == "":
		return muster.Errorf(muster.Conflict, "task %s is %s: commands run only in running tasks", t.ID, t.State)
	}
	worker, err := s.resolveWorker(ctx, string(t.Worker))
	if err != nil {
		return err
	}
	if slices.Contains(worker.UnsupportedFeatures, muster.FeatureExec) {
		return muster.Errorf(muster.Conflict, "task %s runs on worker %s, which cannot execute commands in tasks", t.ID, worker.Name)
	}
	if s.Exec == nil {
		return muster.Errorf(muster.Unavailable, "this server executes no commands in tasks")
	}
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		return muster.Errorf(muster.Invalid, "this path needs a WebSocket: use muster exec; if you did, a proxy before the server does not pass WebSocket connections")
	}
	release, err := s.limits.AcquireStream(activeKeyOf(ctx))
	if err != nil {
		return tooManyError{err}
	}
	defer release()
	return s.Exec.Serve(w, r, execwire.Target{
		Attempt: muster.AttemptID{Task: t.ID, N: t.Attempt}, Worker: worker.ID, WorkerName: worker.Name,
		KeyID: p.KeyID, KeyName: p.Name, Address: link.RemoteIPOf(r),
	})
}
