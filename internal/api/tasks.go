package api

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/store"
)

func (s *server) taskRoutes() {
	handle(s, route{id: "list-tasks", method: http.MethodGet, path: apiPath("/jobs/{job}/tasks"), tag: "tasks",
		summary: "List the tasks of a job, by number", verb: auth.ReadJobs}, s.listTasks)
	handle(s, route{id: "get-task", method: http.MethodGet, path: apiPath("/tasks/{task}"), tag: "tasks",
		summary: "Show a task", verb: auth.ReadJobs}, s.getTask)
	handle(s, route{id: "list-attempts", method: http.MethodGet, path: apiPath("/tasks/{task}/attempts"), tag: "tasks",
		summary: "List the attempts of a task", verb: auth.ReadJobs}, s.listAttempts)
	handle(s, route{id: "explain-task", method: http.MethodGet, path: apiPath("/tasks/{task}/explain"), tag: "tasks",
		summary: "Explain the state of a task", verb: auth.ReadJobs}, s.explainTask)
}

type listTasksInput struct {
	JobPath
	Page
	State []string `query:"state,explode" maxItems:"10" doc:"any of these" enum:"waiting,queued,assigned,running,cancelling,succeeded,failed,timed_out,cancelled,skipped"`
	Tasks string   `query:"tasks" maxLength:"10000" example:"0-9,12" doc:"task numbers and ranges"`
}

func (s *server) listTasks(ctx context.Context, in *listTasksInput) (*response[wire.Tasks], error) {
	q := store.TaskQuery{Job: in.id, Cursor: in.Cursor, Limit: in.Limit}
	spans, err := wire.ParseSpans(in.Tasks)
	if err != nil {
		return nil, err
	}
	for _, sp := range spans {
		q.Spans = append(q.Spans, store.Span(sp))
	}
	if q.States, err = parseTaskStates(in.State); err != nil {
		return nil, err
	}
	tasks, next, err := s.Store.Tasks(ctx, q)
	if err != nil {
		return nil, err
	}
	for i := range tasks {
		linkArtifacts(tasks[i].ID, 0, tasks[i].Artifacts)
	}
	return respond(wire.Tasks{Tasks: nonNil(tasks), Next: next}), nil
}

func parseTaskStates(names []string) ([]muster.TaskState, error) {
	states := make([]muster.TaskState, len(names))
	for i, name := range names {
		if err := states[i].UnmarshalText([]byte(name)); err != nil {
			return nil, err
		}
	}
	return states, nil
}

func (s *server) getTask(ctx context.Context, in *TaskPath) (*response[muster.Task], error) {
	task, err := s.Store.Task(ctx, in.id)
	if err != nil {
		return nil, err
	}
	linkArtifacts(task.ID, 0, task.Artifacts)
	return respond(task), nil
}

// taskAttempts reads a task and its attempts.
func (s *server) taskAttempts(ctx context.Context, id muster.TaskID) (muster.Task, []muster.Attempt, error) {
	task, err := s.Store.Task(ctx, id)
	if err != nil {
		return task, nil, err
	}
	attempts, err := s.Store.Attempts(ctx, id)
	return task, attempts, err
}

func (s *server) listAttempts(ctx context.Context, in *TaskPath) (*response[wire.Attempts], error) {
	attempts, err := s.Store.Attempts(ctx, in.id)
	if err != nil {
		return nil, err
	}
	for _, a := range attempts {
		linkArtifacts(in.id, a.ID.N, a.Artifacts)
	}
	return respond(wire.Attempts{Attempts: nonNil(attempts)}), nil
}

// linkArtifacts sets the URLs of artifacts; attempt 0 is the last one.
func linkArtifacts(id muster.TaskID, attempt int, artifacts []muster.Artifact) {
	for i := range artifacts {
		a := &artifacts[i]
		parts := strings.Split(a.Name, "/")
		for k, p := range parts {
			parts[k] = url.PathEscape(p)
		}
		a.URL = apiPath("/tasks/" + id.String() + "/artifacts/" + strings.Join(parts, "/"))
		if attempt > 0 {
			a.URL += "?attempt=" + strconv.Itoa(attempt)
		}
	}
}
