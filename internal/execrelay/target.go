package execrelay

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/execwire"
	"github.com/muster-dev/muster/internal/link"
)

// Reader is the part of the store that has jobs and tasks.
type Reader interface {
	Job(ctx context.Context, id muster.JobID) (muster.Job, error)
	Task(ctx context.Context, id muster.TaskID) (muster.Task, error)
}

// NewTarget returns the target of a client's request, or why p may not execute commands in the task, or why that is not possible. findWorker finds
// a worker by its id.
func NewTarget(r *http.Request, p auth.Principal, reader Reader, findWorker func(context.Context, string) (muster.Worker, error), id muster.TaskID) (none execwire.Target, err error) {
	t, err := reader.Task(r.Context(), id)
	if err != nil {
		return none, err
	}
	job, err := reader.Job(r.Context(), id.Job)
	if err != nil {
		return none, err
	}
	var w muster.Worker
	if t.Worker != "" && !t.State.Final() {
		if w, err = findWorker(r.Context(), string(t.Worker)); err != nil {
			return none, err
		}
	}
	owner := cmp.Or(job.Owner, "none") // an empty one would mean any
	err = auth.Can(p, auth.ExecTasks, auth.Object{Project: job.Project, Job: job.ID, Owner: owner})
	switch {
	case err != nil:
	case t.State.Final():
		err = muster.Errorf(muster.Conflict, "task %s has ended (%s): commands run only in running tasks", t.ID, t.State)
	case t.StartedAt == 0 || t.Worker == "":
		err = muster.Errorf(muster.Conflict, "task %s is %s: commands run only in running tasks", t.ID, t.State)
	case slices.Contains(w.UnsupportedFeatures, muster.FeatureExec):
		err = muster.Errorf(muster.Conflict, "task %s runs on worker %s, which cannot execute commands in tasks", t.ID, w.Name)
	case !strings.EqualFold(r.Header.Get("Upgrade"), "websocket"):
		err = muster.Errorf(muster.Invalid, "this path needs a WebSocket: use muster exec; if you did, a proxy before the server does not pass WebSocket connections")
	}
	return execwire.Target{
		Attempt: muster.AttemptID{Task: t.ID, N: t.Attempt}, Worker: w.ID, WorkerName: w.Name, KeyID: p.KeyID, KeyName: p.Name, Address: link.RemoteIPOf(r),
	}, err
}
