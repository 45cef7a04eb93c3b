package rest

import (
	"context"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/caller"
	"github.com/muster-dev/muster/internal/auth"
)

// Page is the cursor and the size of a page.
type Page struct {
	Cursor string `query:"cursor" maxLength:"200" doc:"next of the previous page"`
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"maximum number of rows"`
}

// JobPath is a job in a path, which the caller may use.
type JobPath struct {
	Job string `path:"job" example:"17" doc:"job number"`
	id  muster.JobID
}

// ID returns the job.
func (p *JobPath) ID() muster.JobID { return p.id }

func (p *JobPath) resolve(ctx context.Context, rr *Router, verb auth.Verb) (err error) {
	p.id, err = rr.AuthorizedJob(ctx, p.Job, verb)
	return err
}

// TaskPath is a task in a path, which the caller may use.
type TaskPath struct {
	Task string `path:"task" example:"17.3" doc:"task id"`
	id   muster.TaskID
}

// ID returns the task.
func (p *TaskPath) ID() muster.TaskID { return p.id }

func (p *TaskPath) resolve(ctx context.Context, rr *Router, verb auth.Verb) (err error) {
	if p.id, err = muster.ParseTaskID(p.Task); err != nil {
		return err
	}
	return rr.AuthorizeJob(ctx, p.id.Job, verb)
}

// Response is a JSON answer.
type Response[T any] struct{ Body T }

// Respond returns an answer with a body.
func Respond[T any](v T) *Response[T] { return &Response[T]{Body: v} }

// AuthorizedJob parses a job number and checks that the caller may do verb to the job.
func (rr *Router) AuthorizedJob(ctx context.Context, text string, verb auth.Verb) (muster.JobID, error) {
	id, err := muster.ParseJobID(text)
	if err != nil {
		return 0, err
	}
	return id, rr.AuthorizeJob(ctx, id, verb)
}

// AuthorizeJob checks that the caller, who may do verb to some job, may do it to this one. For a job of another project
// it returns NotFound.
func (rr *Router) AuthorizeJob(ctx context.Context, id muster.JobID, verb auth.Verb) error {
	p := caller.FromContext(ctx)
	if p.Job != 0 && p.Job != id {
		caller.Deny(ctx, muster.Errorf(muster.Forbidden, "the key %q only reads job %d", p.Name, p.Job))
		return jobNotFound(id)
	}
	if p.Project == "" {
		return nil // authorize has checked verb
	}
	project, err := rr.projectOf(ctx, id)
	if err != nil {
		return err
	}
	if err := auth.Can(p, verb, auth.Object{Project: project, Job: id}); err != nil {
		caller.Audit(ctx).Project = project
		caller.Deny(ctx, err)
		return jobNotFound(id)
	}
	return nil
}

func jobNotFound(id muster.JobID) error {
	return muster.Errorf(muster.NotFound, "there is no job %d", id)
}
