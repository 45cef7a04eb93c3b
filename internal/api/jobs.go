package api

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/redact"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/store"
)

func (s *server) jobRoutes() {
	handle(s, route{id: "submit-job", method: http.MethodPost, path: apiPath("/jobs"), tag: "jobs",
		summary: "Submit a job", verb: auth.SubmitJobs, status: http.StatusCreated, body: s.specBody()}, s.submitJob)
	handle(s, route{id: "list-jobs", method: http.MethodGet, path: apiPath("/jobs"), tag: "jobs",
		summary: "List jobs, newest first by default", verb: auth.ReadJobs}, s.listJobs)
	handle(s, route{id: "get-job", method: http.MethodGet, path: apiPath("/jobs/{job}"), tag: "jobs",
		summary: "Show a job with its spec and stages", verb: auth.ReadJobs}, s.getJob)
	handle(s, route{id: "list-late-reports", method: http.MethodGet, path: apiPath("/jobs/{job}/late"), tag: "jobs",
		summary: "List late reports: reports that came after the server had given up their attempts, at most 100", verb: auth.ReadJobs}, s.listLate)
	handle(s, route{id: "cancel-job", method: http.MethodPost, path: apiPath("/jobs/{job}/cancel"), tag: "jobs",
		summary: "Cancel a job, or some of its tasks", verb: auth.ChangeJobs}, s.cancelJob)
	handle(s, route{id: "retry-job", method: http.MethodPost, path: apiPath("/jobs/{job}/retry"), tag: "jobs",
		summary: "Retry finished tasks that did not succeed", verb: auth.ChangeJobs}, s.retryJob)
	handle(s, route{id: "edit-job", method: http.MethodPost, path: apiPath("/jobs/{job}/edit"), tag: "jobs",
		summary: "Change the priority of a job that has not ended, hold it, or release it", verb: auth.ChangeJobs}, s.editJob)
	handle(s, route{id: "plan-job", method: http.MethodPost, path: apiPath("/plan"), tag: "jobs",
		summary: "Validate a job and show where its tasks would run now", verb: auth.SubmitJobs, body: s.specBody()}, s.planJob)
}

type submitInput struct {
	Key   string `header:"Idempotency-Key" maxLength:"200" doc:"repeating a request with the same key and body returns the same job"`
	Trace string `header:"traceparent" maxLength:"256" doc:"parent span of the job (W3C Trace Context)"`
	SpecInput
}

type submitOutput struct {
	Location string `header:"Location"`
	Body     muster.Job
}

func (s *server) submitJob(ctx context.Context, in *submitInput) (*submitOutput, error) {
	spec, err := s.readSpec(ctx, in.SpecInput)
	if err != nil {
		return nil, err
	}
	if err := s.grantFolders(ctx, spec); err != nil {
		return nil, err
	}
	by := store.IdempotencyKey{Owner: principalOf(ctx).KeyID, Key: in.Key}
	if in.Key != "" {
		sum := sha256.Sum256(in.RawBody)
		by.Digest, by.At = hex.EncodeToString(sum[:]), muster.NewTime(time.Now())
	}
	id, err := s.Engine.Submit(ctx, spec, by)
	if err != nil {
		return nil, err
	}
	job, err := s.Store.Job(ctx, id)
	if in.Key != "" && muster.CodeOf(err) == muster.NotFound {
		return nil, muster.Errorf(muster.Conflict, "job %s of this idempotency key was removed: use a new key", id)
	}
	if err != nil {
		return nil, err
	}
	return &submitOutput{Location: apiPath("/jobs/" + id.String()), Body: job}, nil
}

func (s *server) planJob(ctx context.Context, in *SpecInput) (*response[wire.Plan], error) {
	spec, err := s.readSpec(ctx, *in)
	if err != nil {
		return nil, err
	}
	release, err := s.explainLimiter.acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	stages, err := s.Engine.Plan(ctx, spec)
	return respond(wire.Plan{Stages: nonNil(stages)}), err
}

type listJobsInput struct {
	Page
	State   []string  `query:"state,explode" maxItems:"7" doc:"any of these" enum:"waiting,queued,running,succeeded,failed,timed_out,cancelled"`
	Project string    `query:"project" maxLength:"200"`
	Name    string    `query:"name" maxLength:"200" doc:"part of the name"`
	Kind    string    `query:"kind" maxLength:"200" doc:"kind of all its stages"`
	Owner   string    `query:"owner" maxLength:"200" doc:"id of the key that submitted it"`
	Since   time.Time `query:"since" doc:"created then or later"`
	Until   time.Time `query:"until" doc:"created then or earlier"`
	Order   string    `query:"order" enum:"newest,oldest" default:"newest" doc:"sort order by creation"`
	Label   []string  `query:"label,explode" maxItems:"20" example:"team=vision" doc:"KEY=VALUE; the job must have all of them"`
}

func (s *server) listJobs(ctx context.Context, in *listJobsInput) (*response[wire.Jobs], error) {
	q := store.JobQuery{
		Project: in.Project, Name: in.Name, Kind: in.Kind, Owner: in.Owner, OldestFirst: in.Order == "oldest", Cursor: in.Cursor, Limit: in.Limit,
		Since: timeParam(in.Since), Until: timeParam(in.Until), Job: principalOf(ctx).Job,
	}
	for _, st := range in.State {
		q.States = append(q.States, muster.JobState(st))
	}
	for _, l := range in.Label {
		k, v, ok := strings.Cut(l, "=")
		if !ok {
			return nil, muster.Errorf(muster.Invalid, "%q is not a label: write KEY=VALUE", l)
		}
		if q.Labels == nil {
			q.Labels = map[string]string{}
		}
		q.Labels[k] = v
	}
	if !limitToProject(ctx, &q.Project) {
		return respond(wire.Jobs{Jobs: []muster.Job{}}), nil
	}
	jobs, next, err := s.Store.Jobs(ctx, q)
	return respond(wire.Jobs{Jobs: nonNil(jobs), Next: next}), err
}

func (s *server) getJob(ctx context.Context, in *JobPath) (*response[muster.Job], error) {
	return s.showJob(ctx, in.id)
}

func (s *server) showJob(ctx context.Context, id muster.JobID) (*response[muster.Job], error) {
	job, err := s.Store.Job(ctx, id)
	if err != nil {
		return nil, err
	}
	switch p := principalOf(ctx); {
	case p.Job != 0:
		job.Spec = redact.ForLink(job.Spec)
	case auth.Authorize(p, auth.SubmitJobs, auth.Object{Project: job.Project}) != nil:
		job.Spec = redact.ForReader(job.Spec)
	}
	return respond(job), nil
}

func (s *server) listLate(ctx context.Context, in *JobPath) (*response[wire.Late], error) {
	if _, err := s.Store.Job(ctx, in.id); err != nil {
		return nil, err
	}
	list, err := s.LateReports.LateReports(ctx, in.id)
	return respond(wire.Late{Late: nonNil(list)}), err
}

type changeJobInput struct {
	JobPath
	Body *wire.Selection
}

func (s *server) cancelJob(ctx context.Context, in *changeJobInput) (*response[muster.Job], error) {
	return s.changeJob(ctx, in, s.Engine.Cancel)
}

func (s *server) retryJob(ctx context.Context, in *changeJobInput) (*response[muster.Job], error) {
	return s.changeJob(ctx, in, s.Engine.Retry)
}

func (s *server) changeJob(ctx context.Context, in *changeJobInput, change func(context.Context, muster.JobID, []muster.Span) error) (*response[muster.Job], error) {
	var spans []muster.Span
	if in.Body != nil {
		var err error
		if spans, err = wire.ParseSpans(in.Body.Tasks); err != nil {
			return nil, err
		}
	}
	if err := change(ctx, in.id, spans); err != nil {
		return nil, err
	}
	return s.showJob(ctx, in.id)
}

type editJobInput struct {
	JobPath
	Body wire.JobEdit
}

func (s *server) editJob(ctx context.Context, in *editJobInput) (*response[muster.Job], error) {
	if in.Body.Priority == nil && in.Body.Held == nil {
		return nil, muster.Errorf(muster.Invalid, "nothing to change in job %s: set priority or held", in.id)
	}
	if err := s.JobEditor.Edit(ctx, in.id, in.Body.Priority, in.Body.Held); err != nil {
		return nil, err
	}
	return s.showJob(ctx, in.id)
}

// limitToProject sets the project of a query to that of the caller's key, if it has one. It returns false if the query
// is for another project.
func limitToProject(ctx context.Context, project *string) bool {
	keyProject := principalOf(ctx).Project
	if keyProject == "" {
		return true
	}
	ok := *project == "" || *project == keyProject
	*project = keyProject
	return ok
}

// timeParam converts a parameter; the zero time is 0.
func timeParam(t time.Time) muster.Time {
	if t.IsZero() {
		return 0
	}
	return muster.NewTime(t)
}

// nonNil returns a list that is [] and not null in JSON.
func nonNil[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return slices.Clip(list)
}
