package api

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/store"
)

const (
	shareTTL    = muster.Duration(24 * time.Hour)
	maxShareTTL = muster.Duration(30 * 24 * time.Hour)
	// maxShares is the maximum number of valid links to one job, maxProjectShares to all jobs of one project.
	maxShares        = 100
	maxProjectShares = 1_000
)

// sharedOperations are the operations that a key for one job may use: their answers are about that job only.
var sharedOperations = map[string]bool{
	"get-job": true, "get-job-states": true, "get-job-usage": true, "list-jobs": true,
	"list-tasks": true, "get-task": true, "list-attempts": true, "explain-task": true, "get-task-spec": true, "list-task-events": true,
	"get-logs": true, "get-log-window": true, "search-logs": true, "get-usage": true, "get-task-metrics": true,
	"list-artifacts": true, "get-artifact": true, "get-content": true, "watch-events": true, "whoami": true,
}

func (s *server) shareRoutes() {
	handle(s, route{id: "share-job", method: http.MethodPost, path: apiPath("/jobs/{job}/share"), tag: "jobs", verb: auth.ChangeJobs, status: http.StatusCreated,
		summary: "Create a link that lets anyone read this job, and nothing else, until it expires"}, s.shareJob)
	handle(s, route{id: "unshare-job", method: http.MethodDelete, path: apiPath("/jobs/{job}/share"), tag: "jobs", verb: auth.ChangeJobs,
		summary: "Revoke all links to this job"}, s.unshareJob)
}

type shareInput struct {
	JobPath
	Body *wire.NewShare
}

func (s *server) shareJob(ctx context.Context, in *shareInput) (*response[wire.Share], error) {
	job, err := s.Store.Job(ctx, in.id)
	if err != nil {
		return nil, err
	}
	ttl := shareTTL
	if in.Body != nil && in.Body.TTL > 0 {
		ttl = in.Body.TTL
	}
	if ttl > maxShareTTL {
		return nil, muster.Errorf(muster.Invalid, "a link cannot be valid for %s: the maximum is 30d", ttl)
	}
	now := muster.NewTime(time.Now())
	if err := s.pruneShares(ctx, &job, now); err != nil {
		return nil, err
	}
	caller := principalOf(ctx)
	key := store.Key{
		Name: "link to job " + job.ID.String(), Role: string(auth.Viewer), Project: job.Project, Job: job.ID, Parent: caller.KeyID, CreatedAt: now, ExpiresAt: now.Add(ttl),
	}
	if caller.Expires != 0 {
		key.ExpiresAt = min(key.ExpiresAt, caller.Expires)
	}
	secret, err := s.makeKey(ctx, &key)
	return respond(wire.Share{URL: "/share#" + secret, Secret: secret, Key: key.ID, ExpiresAt: key.ExpiresAt}), err
}

// pruneShares deletes the keys of expired links. It returns a Conflict if a job or a project has the maximum number of links.
func (s *server) pruneShares(ctx context.Context, job *muster.Job, now muster.Time) error {
	jobShares, projectShares := 0, 0
	err := s.revokeKeys(ctx, func(k *store.Key) bool {
		expired := k.ExpiresAt != 0 && k.ExpiresAt <= now
		if k.Job != 0 && k.Project == job.Project && !expired {
			projectShares++
			if k.Job == job.ID {
				jobShares++
			}
		}
		return k.Job != 0 && expired
	})
	if err != nil {
		return err
	}
	if jobShares >= maxShares {
		return muster.Errorf(muster.Conflict, "job %d has the maximum of %d valid links: use one of them, or revoke them with DELETE %s", job.ID, jobShares, apiPath("/jobs/"+job.ID.String()+"/share"))
	}
	if projectShares >= maxProjectShares {
		return muster.Errorf(muster.Conflict, "project %s has the maximum of %d valid links: revoke those of a job with DELETE %s", job.Project, projectShares, apiPath("/jobs/{job}/share"))
	}
	return nil
}

func (s *server) unshareJob(ctx context.Context, in *JobPath) (*struct{}, error) {
	return nil, s.revokeKeys(ctx, func(k *store.Key) bool { return k.Job == in.id })
}

// restrictToJob rejects requests of a key for one job that are not about that job.
func (s *server) restrictToJob(ctx huma.Context, next func(huma.Context)) {
	p := principalOf(ctx.Context())
	if p.Job == 0 {
		next(ctx)
		return
	}
	if err := authorizeShared(ctx, p); err != nil {
		r, w := humago.Unwrap(ctx)
		s.writeError(w, r, err)
		return
	}
	next(ctx)
}

func authorizeShared(ctx huma.Context, p auth.Principal) error {
	op := ctx.Operation()
	if !sharedOperations[op.OperationID] {
		return muster.Errorf(muster.Forbidden, "the key %q can only read job %d: use another key for %s %s", p.Name, p.Job, op.Method, op.Path)
	}
	id := p.Job
	switch {
	case strings.Contains(op.Path, "{job}"):
		if job, err := muster.ParseJobID(ctx.Param("job")); err == nil {
			id = job
		}
	case strings.Contains(op.Path, "{task}"):
		if task, err := muster.ParseTaskID(ctx.Param("task")); err == nil {
			id = task.Job
		}
	}
	if id != p.Job {
		return jobNotFound(id)
	}
	return nil
}
