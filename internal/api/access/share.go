package access

import (
	"context"
	"net/http"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/caller"
	"github.com/muster-dev/muster/internal/api/rest"
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

func (a *Access) shareRoutes(rr *rest.Router) {
	rest.Handle(rr, rest.Route{ID: "share-job", Method: http.MethodPost, Path: rest.Path("/jobs/{job}/share"), Tag: "jobs", Verb: auth.ChangeJobs, Status: http.StatusCreated,
		Summary: "Create a link that lets anyone read this job, and nothing else, until it expires"}, a.shareJob)
	rest.Handle(rr, rest.Route{ID: "unshare-job", Method: http.MethodDelete, Path: rest.Path("/jobs/{job}/share"), Tag: "jobs", Verb: auth.ChangeJobs,
		Summary: "Revoke all links to this job"}, a.unshareJob)
}

type shareInput struct {
	rest.JobPath
	Body *wire.NewShare
}

func (a *Access) shareJob(ctx context.Context, in *shareInput) (*rest.Response[wire.Share], error) {
	job, err := a.Jobs.Job(ctx, in.ID())
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
	if err := a.pruneShares(ctx, &job, now); err != nil {
		return nil, err
	}
	by := caller.FromContext(ctx)
	key := store.Key{
		Name: "link to job " + job.ID.String(), Role: string(auth.Viewer), Project: job.Project, Job: job.ID, Parent: by.KeyID, CreatedAt: now, ExpiresAt: now.Add(ttl),
	}
	if by.Expires != 0 {
		key.ExpiresAt = min(key.ExpiresAt, by.Expires)
	}
	secret, err := a.makeKey(ctx, &key)
	return rest.Respond(wire.Share{URL: "/share#" + secret, Secret: secret, Key: key.ID, ExpiresAt: key.ExpiresAt}), err
}

// pruneShares deletes the keys of expired links. It returns a Conflict if a job or a project has the maximum number of links.
func (a *Access) pruneShares(ctx context.Context, job *muster.Job, now muster.Time) error {
	jobShares, projectShares := 0, 0
	err := a.revokeKeys(ctx, func(k *store.Key) bool {
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
		return muster.Errorf(muster.Conflict, "job %d has the maximum of %d valid links: use one of them, or revoke them with DELETE %s", job.ID, jobShares, rest.Path("/jobs/"+job.ID.String()+"/share"))
	}
	if projectShares >= maxProjectShares {
		return muster.Errorf(muster.Conflict, "project %s has the maximum of %d valid links: revoke those of a job with DELETE %s", job.Project, projectShares, rest.Path("/jobs/{job}/share"))
	}
	return nil
}

func (a *Access) unshareJob(ctx context.Context, in *rest.JobPath) (*struct{}, error) {
	return nil, a.revokeKeys(ctx, func(k *store.Key) bool { return k.Job == in.ID() })
}
