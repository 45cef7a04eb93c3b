package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/redact"
	"github.com/muster-dev/muster/internal/api/rest"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/schedules"
	"github.com/muster-dev/muster/internal/store"
)

// Schedules keeps schedules.
type Schedules interface {
	Put(ctx context.Context, v store.Schedule, by auth.Principal, replace bool) (schedules.View, error)
	List(ctx context.Context, project string) ([]schedules.View, error)
	Show(ctx context.Context, project, name string) (schedules.View, error)
	SetPaused(ctx context.Context, project, name string, paused bool) (schedules.View, error)
	// Start submits a job of a schedule now.
	Start(ctx context.Context, project, name string, by store.IdempotencyKey) (muster.JobID, error)
	Delete(ctx context.Context, project, name string) error
}

func (s *server) scheduleRoutes() {
	all := rest.Path("/projects/{project}/schedules")
	one := all + "/{schedule}"
	rest.Handle(s.router, rest.Route{ID: "list-schedules", Method: http.MethodGet, Path: rest.Path("/schedules"), Tag: "schedules",
		Summary: "List schedules, by project and name", Verb: auth.ReadJobs}, s.listSchedules)
	rest.Handle(s.router, rest.Route{ID: "create-schedule", Method: http.MethodPost, Path: all, Tag: "schedules", Status: http.StatusCreated,
		Summary: "Create or replace a schedule, which submits a job at the times of a cron expression", Verb: auth.SubmitJobs}, s.createSchedule)
	rest.Handle(s.router, rest.Route{ID: "get-schedule", Method: http.MethodGet, Path: one, Tag: "schedules",
		Summary: "Show a schedule with its last runs and the spec of its jobs", Verb: auth.ReadJobs}, s.getSchedule)
	rest.Handle(s.router, rest.Route{ID: "pause-schedule", Method: http.MethodPost, Path: one + "/pause", Tag: "schedules",
		Summary: "Pause a schedule: it has no runs until it is resumed", Verb: auth.ChangeJobs}, s.pauseSchedule)
	rest.Handle(s.router, rest.Route{ID: "resume-schedule", Method: http.MethodPost, Path: one + "/resume", Tag: "schedules",
		Summary: "Resume a schedule from now on", Verb: auth.ChangeJobs}, s.resumeSchedule)
	rest.Handle(s.router, rest.Route{ID: "run-schedule", Method: http.MethodPost, Path: one + "/run", Tag: "schedules", Status: http.StatusCreated,
		Summary: "Submit a job of a schedule now, with the rights of the schedule's owner", Verb: auth.ChangeJobs}, s.runSchedule)
	rest.Handle(s.router, rest.Route{ID: "delete-schedule", Method: http.MethodDelete, Path: one, Tag: "schedules",
		Summary: "Delete a schedule, not its jobs", Verb: auth.ChangeJobs}, s.deleteSchedule)
}

type listSchedulesInput struct {
	Project string `query:"project" maxLength:"200"`
}

func (s *server) listSchedules(ctx context.Context, in *listSchedulesInput) (*rest.Response[wire.Schedules], error) {
	answer := wire.Schedules{Schedules: []wire.Schedule{}}
	if !limitToProject(ctx, &in.Project) {
		return rest.Respond(answer), nil
	}
	list, err := s.Schedules.List(ctx, in.Project)
	for i := range list {
		answer.Schedules = append(answer.Schedules, scheduleResponse(&list[i]))
	}
	return rest.Respond(answer), err
}

func scheduleResponse(v *schedules.View) wire.Schedule {
	answer := wire.Schedule{
		Project: v.Project, Name: v.Name, Cron: v.Cron, Timezone: cmp.Or(v.Timezone, "UTC"), Missed: v.Missed, Overlap: v.Overlap, Paused: v.Paused, Owner: v.Owner, OwnerName: v.OwnerName,
		CreatedAt: v.CreatedAt, UpdatedAt: v.UpdatedAt, Next: []muster.Time{}, Problem: v.Problem, Spec: v.Spec,
	}
	for _, t := range v.Upcoming {
		answer.Next = append(answer.Next, muster.NewTime(t))
	}
	for i := range v.Runs {
		r := &v.Runs[i]
		answer.Runs = append(answer.Runs, wire.ScheduleRun{N: r.N, At: r.At, DecidedAt: r.DecidedAt, Outcome: r.Outcome, Manual: r.Manual, Job: r.Job, Message: r.Message})
	}
	return answer
}

// showSchedule is the answer with a whole schedule, as the caller may see it.
func showSchedule(ctx context.Context, v *schedules.View) *rest.Response[wire.Schedule] {
	answer := scheduleResponse(v)
	if auth.Can(principalOf(ctx), auth.SubmitJobs, auth.Object{Project: v.Project}) != nil {
		answer.Spec = redact.ForReader(answer.Spec)
	}
	return rest.Respond(answer)
}

type createScheduleInput struct {
	ProjectPath
	Body wire.NewSchedule
}

type createScheduleOutput struct {
	Location string `header:"Location"`
	Body     wire.Schedule
}

func (s *server) createSchedule(ctx context.Context, in *createScheduleInput) (*createScheduleOutput, error) {
	if err := auth.Can(principalOf(ctx), auth.SubmitJobs, auth.Object{Project: in.Project}); err != nil {
		return nil, err
	}
	spec, err := s.readScheduleSpec(ctx, in)
	if err != nil {
		return nil, err
	}
	b := &in.Body
	v, err := s.Schedules.Put(ctx, store.Schedule{
		Project: in.Project, Name: b.Name, Cron: b.Cron, Timezone: b.Timezone, Missed: cmp.Or(b.Missed, "run-once"), Overlap: cmp.Or(b.Overlap, "allow"), Paused: b.Paused, Spec: spec,
	}, principalOf(ctx), b.Replace)
	if err != nil {
		return nil, err
	}
	return &createScheduleOutput{Location: rest.Path("/projects/" + in.Project + "/schedules/" + b.Name), Body: showSchedule(ctx, &v).Body}, nil
}

// readScheduleSpec checks the spec of a schedule like that of a job, and prepares it for jobs.
func (s *server) readScheduleSpec(ctx context.Context, in *createScheduleInput) (*muster.Spec, error) {
	sent := &in.Body.Spec
	if sent.Project != "" && sent.Project != in.Project {
		return nil, muster.Errorf(muster.Invalid, "the spec is of project %q, and the schedule of project %q: use the same", muster.Truncate(sent.Project), in.Project)
	}
	sent.Project, sent.Name = in.Project, cmp.Or(sent.Name, in.Body.Name)
	data, err := json.Marshal(sent)
	if err != nil {
		return nil, muster.Errorf(muster.Internal, "encode spec: %w", err)
	}
	spec, err := s.readSpec(ctx, SpecInput{RawBody: data})
	if e, ok := errors.AsType[*muster.Error](err); ok && len(e.Fields) > 0 {
		fields := slices.Clone(e.Fields)
		for i := range fields {
			fields[i].Line, fields[i].Column = 0, 0 // of a document that the client has not sent
		}
		return nil, &muster.Error{Code: e.Code, Message: e.Message, Fields: fields}
	}
	if err != nil {
		return nil, err
	}
	return spec, s.grantFolders(ctx, spec)
}

// SchedulePath is a schedule of a project in a path.
type SchedulePath struct {
	ProjectPath
	Name string `path:"schedule" minLength:"1" maxLength:"64" pattern:"^[A-Za-z0-9][A-Za-z0-9._-]*$" patternDescription:"letters, digits and . _ -"`
}

func (s *server) getSchedule(ctx context.Context, in *SchedulePath) (*rest.Response[wire.Schedule], error) {
	if err := auth.Can(principalOf(ctx), auth.ReadJobs, auth.Object{Project: in.Project}); err != nil {
		return nil, err
	}
	v, err := s.Schedules.Show(ctx, in.Project, in.Name)
	if err != nil {
		return nil, err
	}
	return showSchedule(ctx, &v), nil
}

func (s *server) pauseSchedule(ctx context.Context, in *SchedulePath) (*rest.Response[wire.Schedule], error) {
	return s.setSchedulePaused(ctx, in, true)
}

func (s *server) resumeSchedule(ctx context.Context, in *SchedulePath) (*rest.Response[wire.Schedule], error) {
	return s.setSchedulePaused(ctx, in, false)
}

func (s *server) setSchedulePaused(ctx context.Context, in *SchedulePath, paused bool) (*rest.Response[wire.Schedule], error) {
	if err := auth.Can(principalOf(ctx), auth.ChangeJobs, auth.Object{Project: in.Project}); err != nil {
		return nil, err
	}
	v, err := s.Schedules.SetPaused(ctx, in.Project, in.Name, paused)
	if err != nil {
		return nil, err
	}
	return showSchedule(ctx, &v), nil
}

type runScheduleInput struct {
	SchedulePath
	Key string `header:"Idempotency-Key" maxLength:"200" doc:"repeating a request with the same key returns the same job"`
}

func (s *server) runSchedule(ctx context.Context, in *runScheduleInput) (*submitOutput, error) {
	p := principalOf(ctx)
	if err := auth.Can(p, auth.ChangeJobs, auth.Object{Project: in.Project}); err != nil {
		return nil, err
	}
	id, err := s.Schedules.Start(ctx, in.Project, in.Name, store.IdempotencyKey{Owner: p.KeyID, Key: in.Key})
	if err != nil {
		return nil, err
	}
	job, err := s.showJob(ctx, id)
	if err != nil {
		return nil, err
	}
	return &submitOutput{Location: rest.Path("/jobs/" + id.String()), Body: job.Body}, nil
}

func (s *server) deleteSchedule(ctx context.Context, in *SchedulePath) (*struct{}, error) {
	if err := auth.Can(principalOf(ctx), auth.ChangeJobs, auth.Object{Project: in.Project}); err != nil {
		return nil, err
	}
	return nil, s.Schedules.Delete(ctx, in.Project, in.Name)
}
