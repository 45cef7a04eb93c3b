package api

import (
	"context"
	"net/http"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/caller"
	"github.com/muster-dev/muster/internal/api/rest"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/auth"
)

// Retention removes jobs and applies retention policies.
type Retention interface {
	// Remove removes an ended job. It is a Conflict if the job is live or kept, NotFound if there is none.
	Remove(ctx context.Context, job muster.JobID) error
	// Keep exempts a job from retention and prune, or ends that.
	Keep(ctx context.Context, job muster.JobID, keep bool) error
	// Prune returns what exceeds the policies now, and deletes it in the background unless it is a dry run.
	Prune(ctx context.Context, req wire.PruneRequest) (wire.Prune, error)
	// Status returns the policies, of one project if it is not "".
	Status(ctx context.Context, project string) (wire.Retention, error)
	// SetPolicy replaces the policy of a project; nil deletes it.
	SetPolicy(ctx context.Context, project string, policy *wire.RetentionPolicy) error
}

func (s *server) retentionRoutes() {
	at := rest.Path("/projects/{project}/retention")
	rest.Handle(s.router, rest.Route{ID: "remove-job", Method: http.MethodDelete, Path: rest.Path("/jobs/{job}"), Tag: "jobs",
		Summary: "Remove an ended job with its logs and artifacts", Verb: auth.RemoveJobs}, s.removeJob)
	rest.Handle(s.router, rest.Route{ID: "keep-job", Method: http.MethodPut, Path: rest.Path("/jobs/{job}/keep"), Tag: "jobs",
		Summary: "Exempt a job from retention and prune", Verb: auth.RemoveJobs}, s.keepJob)
	rest.Handle(s.router, rest.Route{ID: "unkeep-job", Method: http.MethodDelete, Path: rest.Path("/jobs/{job}/keep"), Tag: "jobs",
		Summary: "Apply retention to a job again", Verb: auth.RemoveJobs}, s.unkeepJob)
	rest.Handle(s.router, rest.Route{ID: "prune", Method: http.MethodPost, Path: rest.Path("/prune"), Tag: "retention",
		Summary: "Delete what exceeds the retention policies, in the background", Verb: auth.ManageRetention}, s.prune)
	rest.Handle(s.router, rest.Route{ID: "get-retention", Method: http.MethodGet, Path: rest.Path("/retention"), Tag: "retention",
		Summary: "Show the retention policies", Verb: auth.ReadJobs}, s.getRetention)
	rest.Handle(s.router, rest.Route{ID: "put-retention", Method: http.MethodPut, Path: at, Tag: "retention",
		Summary: "Replace the retention policy of a project", Verb: auth.ManageRetention}, s.putRetention)
	rest.Handle(s.router, rest.Route{ID: "delete-retention", Method: http.MethodDelete, Path: at, Tag: "retention",
		Summary: "Apply the policies of the server to a project again", Verb: auth.ManageRetention}, s.deleteRetention)
}

func (s *server) removeJob(ctx context.Context, in *rest.JobPath) (*struct{}, error) {
	return nil, s.Retention.Remove(ctx, in.ID())
}

func (s *server) keepJob(ctx context.Context, in *rest.JobPath) (*rest.Response[muster.Job], error) {
	return s.setKept(ctx, in.ID(), true)
}

func (s *server) unkeepJob(ctx context.Context, in *rest.JobPath) (*rest.Response[muster.Job], error) {
	return s.setKept(ctx, in.ID(), false)
}

func (s *server) setKept(ctx context.Context, id muster.JobID, keep bool) (*rest.Response[muster.Job], error) {
	if err := s.Retention.Keep(ctx, id, keep); err != nil {
		return nil, err
	}
	return s.showJob(ctx, id)
}

type pruneInput struct{ Body wire.PruneRequest }

func (s *server) prune(ctx context.Context, in *pruneInput) (*rest.Response[wire.Prune], error) {
	p := principalOf(ctx)
	if in.Body.Project == "" {
		in.Body.Project = p.Project
	}
	rec := caller.Audit(ctx)
	if rec.Project = in.Body.Project; in.Body.DryRun {
		rec.Detail = "dry run"
	}
	if err := auth.Can(p, auth.ManageRetention, auth.Object{Project: in.Body.Project}); err != nil {
		return nil, err
	}
	plan, err := s.Retention.Prune(ctx, in.Body)
	return rest.Respond(plan), err
}

func (s *server) getRetention(ctx context.Context, _ *struct{}) (*rest.Response[wire.Retention], error) {
	status, err := s.Retention.Status(ctx, principalOf(ctx).Project)
	return rest.Respond(status), err
}

type putRetentionInput struct {
	ProjectPath
	Body wire.RetentionPolicy
}

func (s *server) putRetention(ctx context.Context, in *putRetentionInput) (*rest.Response[wire.ProjectRetention], error) {
	err := s.setRetention(ctx, in.Project, &in.Body)
	return rest.Respond(wire.ProjectRetention{Project: in.Project, RetentionPolicy: in.Body}), err
}

func (s *server) deleteRetention(ctx context.Context, in *ProjectPath) (*struct{}, error) {
	return nil, s.setRetention(ctx, in.Project, nil)
}

func (s *server) setRetention(ctx context.Context, project string, policy *wire.RetentionPolicy) error {
	if err := auth.Can(principalOf(ctx), auth.ManageRetention, auth.Object{Project: project}); err != nil {
		return err
	}
	return s.Retention.SetPolicy(ctx, project, policy)
}

// logsDeleted returns an error if the logs of an attempt were deleted by retention.
func (s *server) logsDeleted(ctx context.Context, id muster.AttemptID) error {
	if size, err := s.Logs.Size(ctx, id); err != nil || size > 0 {
		return err
	}
	job, err := s.Store.Job(ctx, id.Task.Job)
	if err != nil || job.LogsRemovedAt == 0 || job.LogsRemovedAt < job.FinishedAt || job.FinishedAt == 0 {
		return err
	}
	return deletedError("logs", job.ID, job.LogsRemovedAt)
}

// artifactsDeleted returns a better error than err if it is that of a file that was deleted by retention.
func (s *server) artifactsDeleted(ctx context.Context, id muster.JobID, err error) error {
	if err == nil || muster.CodeOf(err) != muster.NotFound {
		return err
	}
	if job, jobErr := s.Store.Job(ctx, id); jobErr == nil && job.ArtifactsRemovedAt != 0 {
		return deletedError("artifacts", id, job.ArtifactsRemovedAt)
	}
	return err
}

func deletedError(what string, id muster.JobID, at muster.Time) error {
	return muster.Errorf(muster.NotFound, "the %s of job %s were deleted on %s by its retention policy: muster retention list shows the policies", what, id, at.Std().Format("2006-01-02"))
}
