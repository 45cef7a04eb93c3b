package api

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/store"
)

func (s *server) allTasksRoutes() {
	handle(s, route{id: "list-all-tasks", method: http.MethodGet, path: apiPath("/tasks"), tag: "tasks",
		summary: "List tasks of all jobs by state, newest job first", verb: auth.ReadJobs}, s.listAllTasks)
}

// maxScannedJobs is the maximum number of jobs that one request scans. The answer is then short and has a cursor.
const maxScannedJobs = 2000

type listAllTasksInput struct {
	Page
	State   []string `query:"state,explode" maxItems:"10" doc:"any of these; default: assigned, running and cancelling" enum:"waiting,queued,assigned,running,cancelling,succeeded,failed,timed_out,cancelled,skipped"`
	Project string   `query:"project" maxLength:"200"`
}

func (s *server) listAllTasks(ctx context.Context, in *listAllTasksInput) (*response[wire.Tasks], error) {
	states := []muster.TaskState{muster.Assigned, muster.Running, muster.Cancelling}
	if len(in.State) > 0 {
		var err error
		if states, err = parseTaskStates(in.State); err != nil {
			return nil, err
		}
	}
	q := store.JobQuery{Project: in.Project, Limit: 200}
	if !limitToProject(ctx, &q.Project) {
		return respond(wire.Tasks{Tasks: []muster.Task{}}), nil
	}
	if !slices.ContainsFunc(states, muster.TaskState.Final) {
		q.States = []muster.JobState{muster.JobWaiting, muster.JobQueued, muster.JobRunning}
	}
	resumeJob, resumeCursor, err := parseAllTasksCursor(in.Cursor, &q)
	if err != nil {
		return nil, err
	}
	page := wire.Tasks{Tasks: []muster.Task{}}
	for scanned := 0; ; {
		jobs, next, err := s.Store.Jobs(ctx, q)
		if err != nil {
			return nil, err
		}
		for i := range jobs {
			first := ""
			if jobs[i].ID == resumeJob {
				first = resumeCursor
			}
			if page.Next, err = s.appendTasks(ctx, &jobs[i], states, first, in.Limit, &page.Tasks); page.Next != "" || err != nil {
				return respond(page), err
			}
		}
		if scanned += len(jobs); next == "" || scanned >= maxScannedJobs {
			if next != "" {
				page.Next = jobs[len(jobs)-1].ID.String() + "."
			}
			return respond(page), nil
		}
		q.Cursor = next
	}
}

// parseAllTasksCursor reads a cursor: "JOB.CURSOR" is a place within a job, "JOB." is after it.
func parseAllTasksCursor(cursor string, q *store.JobQuery) (resumeJob muster.JobID, resumeCursor string, err error) {
	if cursor == "" {
		return 0, "", nil
	}
	text, resumeCursor, ok := strings.Cut(cursor, ".")
	job, err := strconv.ParseInt(text, 10, 62)
	if err != nil || !ok || job < 1 {
		return 0, "", muster.Errorf(muster.Invalid, "%q is not a cursor: use next of the previous page", cursor)
	}
	resumeJob = muster.JobID(job)
	if resumeCursor != "" {
		job++ // the job itself
	}
	q.Cursor = strconv.FormatInt(job, 10)
	return resumeJob, resumeCursor, nil
}

// appendTasks adds tasks of a job up to limit, and returns the cursor of the rest, if any.
func (s *server) appendTasks(ctx context.Context, job *muster.Job, states []muster.TaskState, from string, limit int, tasks *[]muster.Task) (next string, err error) {
	if !slices.ContainsFunc(states, func(st muster.TaskState) bool { return job.Counts[st] > 0 }) {
		return "", nil
	}
	if len(*tasks) == limit {
		return (job.ID + 1).String() + ".", nil
	}
	batch, cursor, err := s.Store.Tasks(ctx, store.TaskQuery{Job: job.ID, States: states, Cursor: from, Limit: limit - len(*tasks)})
	if muster.CodeOf(err) == muster.NotFound {
		return "", nil // it was deleted meanwhile
	}
	if err != nil {
		return "", err
	}
	for i := range batch {
		linkArtifacts(batch[i].ID, 0, batch[i].Artifacts)
	}
	*tasks = append(*tasks, batch...)
	if cursor != "" {
		cursor = job.ID.String() + "." + cursor
	}
	return cursor, nil
}
