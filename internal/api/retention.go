package api

import (
	"context"
	"net/http"

	"github.com/muster-dev/muster"
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
	at := apiPath("/projects/{project}/retention")
	handle(s, route{id: "remove-job", method: http.MethodDelete, path: apiPath("/jobs/{job}"), tag: "jobs",
		summary: "Remove an ended job with its logs and artifacts", verb: auth.RemoveJobs}, s.removeJob)
	handle(s, route{id: "keep-job", method: http.MethodPut, path: apiPath("/jobs/{job}/keep"), tag: "jobs",
		summary: "Exempt a job from retention and prune", verb: auth.RemoveJobs}, s.keepJob)
	handle(s, route{id: "unkeep-job", method: http.MethodDelete, path: apiPath("/jobs/{job}/keep"), tag: "jobs",
		summary: "Apply retention to a job again", verb: auth.RemoveJobs}, s.unkeepJob)
	handle(s, route{id: "prune", method: http.MethodPost, path: apiPath("/prune"), tag: "retention",
		summary: "Delete what exceeds the retention policies, in the background", verb: auth.ManageRetention}, s.prune)
	handle(s, route{id: "get-retention", method: http.MethodGet, path: apiPath("/retention"), tag: "retention",
		summary: "Show the retention policies", verb: auth.ReadJobs}, s.getRetention)
	handle(s, route{id: "put-retention", method: http.MethodPut, path: at, tag: "retention",
		summary: "Replace the retention policy of a project", verb: auth.ManageRetention}, s.putRetention)
	handle(s, route{id: "delete-retention", method: http.MethodDelete, path: at, tag: "retention",
		summary: "Apply the policies of the server to a project again", verb: auth.ManageRetention}, s.deleteRetention)
}

func (s *server) removeJob(ctx context.Context, in *JobPath) (*struct{}, error) {
	return nil, s.Retention.Remove(ctx, in.id)
}

func (s *server) keepJob(ctx context.Context, in *JobPath) (*response[muster.Job], error) {
	return s.setKept(ctx, in.id, true)
}

func (s *server) unkeepJob(ctx context.Context, in *JobPath) (*response[muster.Job], error) {
	return s.setKept(ctx, in.id, false)
}

func (s *server) setKept(ctx context.Context, id muster.JobID, keep bool) (*response[muster.Job], error) {
	if err := s.Retention.Keep(ctx, id, keep); err != nil {
		return nil, err
	}
	return s.showJob(ctx, id)
}

type pruneInput struct{ Body wire.PruneRequest }

func (s *server) prune(ctx context.Context, in *pruneInput) (*response[wire.Prune], error) {
	p := principalOf(ctx)
	if in.Body.Project == "" {
		in.Body.Project = p.Project
	}
	if err := auth.Authorize(p, auth.ManageRetention, auth.Object{Project: in.Body.Project}); err != nil {
		return nil, err
	}
	plan, err := s.Retention.Prune(ctx, in.Body)
	return respond(plan), err
}

func (s *server) getRetention(ctx context.Context, _ *struct{}) (*response[wire.Retention], error) {
	status, err := s.Retention.Status(ctx, principalOf(ctx).Project)
	return respond(status), err
}

type putRetentionInput struct {
	ProjectPath
	Body wire.RetentionPolicy
}

func (s *server) putRetention(ctx context.Context, in *putRetentionInput) (*response[wire.ProjectRetention], error) {
	err := s.setRetention(ctx, in.Project, &in.Body)
	return respond(wire.ProjectRetention{Project: in.Project, RetentionPolicy: in.Body}), err
}

func (s *server) deleteRetention(ctx context.Context, in *ProjectPath) (*struct{}, error) {
	return nil, s.setRetention(ctx, in.Project, nil)
}

func (s *server) setRetention(ctx context.Context, project string, policy *wire.RetentionPolicy) error {
	if err := auth.Authorize(principalOf(ctx), auth.ManageRetention, auth.Object{Project: project}); err != nil {
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
