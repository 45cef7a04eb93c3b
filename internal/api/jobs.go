package api

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/caller"
	"github.com/muster-dev/muster/internal/api/redact"
	"github.com/muster-dev/muster/internal/api/rest"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/store"
)

func (s *server) jobRoutes() {
	rest.Handle(s.router, rest.Route{ID: "submit-job", Method: http.MethodPost, Path: rest.Path("/jobs"), Tag: "jobs",
		Summary: "Submit a job", Verb: auth.SubmitJobs, Status: http.StatusCreated, Audit: rest.AuditLater, Body: s.specBody()}, s.submitJob)
	rest.Handle(s.router, rest.Route{ID: "list-jobs", Method: http.MethodGet, Path: rest.Path("/jobs"), Tag: "jobs", Shared: true,
		Summary: "List jobs, newest first by default", Verb: auth.ReadJobs}, s.listJobs)
	rest.Handle(s.router, rest.Route{ID: "get-job", Method: http.MethodGet, Path: rest.Path("/jobs/{job}"), Tag: "jobs", Shared: true,
		Summary: "Show a job with its spec and stages", Verb: auth.ReadJobs}, s.getJob)
	rest.Handle(s.router, rest.Route{ID: "list-late-reports", Method: http.MethodGet, Path: rest.Path("/jobs/{job}/late"), Tag: "jobs",
		Summary: "List late reports: reports that came after the server had given up their attempts, at most 100", Verb: auth.ReadJobs}, s.listLate)
	rest.Handle(s.router, rest.Route{ID: "cancel-job", Method: http.MethodPost, Path: rest.Path("/jobs/{job}/cancel"), Tag: "jobs",
		Summary: "Cancel a job, or some of its tasks", Verb: auth.ChangeJobs}, s.cancelJob)
	rest.Handle(s.router, rest.Route{ID: "retry-job", Method: http.MethodPost, Path: rest.Path("/jobs/{job}/retry"), Tag: "jobs",
		Summary: "Retry finished tasks that did not succeed", Verb: auth.ChangeJobs}, s.retryJob)
	rest.Handle(s.router, rest.Route{ID: "edit-job", Method: http.MethodPost, Path: rest.Path("/jobs/{job}/edit"), Tag: "jobs",
		Summary: "Change the priority of a job that has not ended, hold it, or release it", Verb: auth.ChangeJobs}, s.editJob)
	rest.Handle(s.router, rest.Route{ID: "plan-job", Method: http.MethodPost, Path: rest.Path("/plan"), Tag: "jobs",
		Summary: "Validate a job and show where its tasks would run now", Verb: auth.SubmitJobs, Audit: rest.AuditDenials, Body: s.specBody()}, s.planJob)
}

type submitInput struct {
	Key   string `header:"Idempotency-Key" maxLength:"200" doc:"repeating a request with the same key and body returns the same job"`
	Trace string `header:"traceparent" maxLength:"256" doc:"parent span of the job (W3C Trace Context)"`
	Rerun string `query:"rerun" maxLength:"20" pattern:"^[0-9]+$" example:"17" doc:"an earlier job of the project, whose results the job takes for the stages before from"`
	From  string `query:"from" maxLength:"64" example:"train" doc:"with rerun: the first stage that runs again, with all that need it"`
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
		body := in.RawBody
		if in.Rerun != "" {
			body = fmt.Appendf(slices.Clone(body), "\x00%s %s", in.Rerun, in.From)
		}
		sum := sha256.Sum256(body)
		by.Digest, by.At = hex.EncodeToString(sum[:]), muster.NewTime(time.Now())
	}
	var id muster.JobID
	switch of, parseErr := muster.ParseJobID(cmp.Or(in.Rerun, "1")); {
	case (in.Rerun == "") != (in.From == ""):
		err = muster.Errorf(muster.Invalid, "rerun and from belong together: a job, and the stage from which it runs again")
	case in.Rerun == "":
		id, err = s.Engine.Submit(ctx, spec, by)
	case parseErr != nil:
		err = parseErr
	default:
		id, err = s.JobEditor.Rerun(ctx, spec, by, of, in.From)
	}
	if err != nil {
		return nil, err
	}
	rec := caller.Audit(ctx)
	rec.Object, rec.Project = "job/"+id.String(), spec.Project
	job, err := s.Store.Job(ctx, id)
	if in.Key != "" && muster.CodeOf(err) == muster.NotFound {
		return nil, muster.Errorf(muster.Conflict, "job %s of this idempotency key was removed: use a new key", id)
	}
	if err != nil {
		return nil, err
	}
	return &submitOutput{Location: rest.Path("/jobs/" + id.String()), Body: job}, nil
}

func (s *server) planJob(ctx context.Context, in *SpecInput) (*rest.Response[wire.Plan], error) {
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
	return rest.Respond(wire.Plan{Stages: nonNil(stages)}), err
}

type listJobsInput struct {
	rest.Page
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

func (s *server) listJobs(ctx context.Context, in *listJobsInput) (*rest.Response[wire.Jobs], error) {
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
		return rest.Respond(wire.Jobs{Jobs: []muster.Job{}}), nil
	}
	jobs, next, err := s.Store.Jobs(ctx, q)
	return rest.Respond(wire.Jobs{Jobs: nonNil(jobs), Next: next}), err
}

func (s *server) getJob(ctx context.Context, in *rest.JobPath) (*rest.Response[muster.Job], error) {
	return s.showJob(ctx, in.ID())
}

func (s *server) showJob(ctx context.Context, id muster.JobID) (*rest.Response[muster.Job], error) {
	job, err := s.Store.Job(ctx, id)
	if err != nil {
		return nil, err
	}
	switch p := principalOf(ctx); {
	case p.Job != 0:
		job.Spec = redact.ForLink(job.Spec)
	case auth.Can(p, auth.SubmitJobs, auth.Object{Project: job.Project}) != nil:
		job.Spec = redact.ForReader(job.Spec)
	}
	return rest.Respond(job), nil
}

func (s *server) listLate(ctx context.Context, in *rest.JobPath) (*rest.Response[wire.Late], error) {
	if _, err := s.Store.Job(ctx, in.ID()); err != nil {
		return nil, err
	}
	list, err := s.LateReports.LateReports(ctx, in.ID())
	return rest.Respond(wire.Late{Late: nonNil(list)}), err
}

type changeJobInput struct {
	rest.JobPath
	Body *wire.Selection
}

func (s *server) cancelJob(ctx context.Context, in *changeJobInput) (*rest.Response[muster.Job], error) {
	return s.changeJob(ctx, in, s.Engine.Cancel)
}

func (s *server) retryJob(ctx context.Context, in *changeJobInput) (*rest.Response[muster.Job], error) {
	return s.changeJob(ctx, in, s.Engine.Retry)
}

func (s *server) changeJob(ctx context.Context, in *changeJobInput, change func(context.Context, muster.JobID, []muster.Span) error) (*rest.Response[muster.Job], error) {
	var spans []muster.Span
	if in.Body != nil {
		var err error
		if spans, err = wire.ParseSpans(in.Body.Tasks); err != nil {
			return nil, err
		}
	}
	if err := change(ctx, in.ID(), spans); err != nil {
		return nil, err
	}
	return s.showJob(ctx, in.ID())
}

type editJobInput struct {
	rest.JobPath
	Body wire.JobEdit
}

func (s *server) editJob(ctx context.Context, in *editJobInput) (*rest.Response[muster.Job], error) {
	if in.Body.Priority == nil && in.Body.Held == nil {
		return nil, muster.Errorf(muster.Invalid, "nothing to change in job %s: set priority or held", in.ID())
	}
	if err := s.JobEditor.Edit(ctx, in.ID(), in.Body.Priority, in.Body.Held); err != nil {
		return nil, err
	}
	return s.showJob(ctx, in.ID())
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
