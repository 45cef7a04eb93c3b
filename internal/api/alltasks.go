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
	handle(s, route{id: "list-all-tasks", method: http.MethodGet, path: prefixed("/tasks"), tag: "tasks",
		summary: "List the tasks of all jobs that are in certain states, those of the newest job first", verb: auth.ReadJobs}, s.listAllTasks)
}

// scannedJobs is how many jobs one answer looks at. One that stops there is short, and has a cursor.
const scannedJobs = 2000

type listAllTasksInput struct {
	Page
	State   []string `query:"state,explode" maxItems:"10" doc:"any of these; default: assigned, running and cancelling" enum:"waiting,queued,assigned,running,cancelling,succeeded,failed,timed_out,cancelled,skipped"`
	Project string   `query:"project" maxLength:"200"`
}

func (s *server) listAllTasks(ctx context.Context, in *listAllTasksInput) (*body[wire.Tasks], error) {
	states := []muster.TaskState{muster.Assigned, muster.Running, muster.Cancelling}
	if len(in.State) > 0 {
		states = nil
	}
	for _, name := range in.State {
		var st muster.TaskState
		if err := st.UnmarshalText([]byte(name)); err != nil {
			return nil, err
		}
		states = append(states, st)
	}
	q := store.JobQuery{Project: in.Project, Limit: 200}
	if own := principalOf(ctx).Project; own != "" {
		if q.Project != "" && q.Project != own {
			return answer(wire.Tasks{Tasks: []muster.Task{}}), nil
		}
		q.Project = own
	}
	if !slices.ContainsFunc(states, muster.TaskState.Final) {
		q.States = []muster.JobState{muster.JobWaiting, muster.JobQueued, muster.JobRunning}
	}
	at, from, err := allTasksCursor(in.Cursor, &q)
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
			if jobs[i].ID == at {
				first = from
			}
			if page.Next, err = s.tasksOf(ctx, &jobs[i], states, first, in.Limit, &page.Tasks); page.Next != "" || err != nil {
				return answer(page), err
			}
		}
		if scanned += len(jobs); next == "" || scanned >= scannedJobs {
			if next != "" {
				page.Next = jobs[len(jobs)-1].ID.String() + "."
			}
			return answer(page), nil
		}
		q.Cursor = next
	}
}

// allTasksCursor reads a cursor: "JOB.CURSOR" is within a job, "JOB." after it.
func allTasksCursor(cursor string, q *store.JobQuery) (at muster.JobID, from string, err error) {
	if cursor == "" {
		return 0, "", nil
	}
	text, from, ok := strings.Cut(cursor, ".")
	job, err := strconv.ParseInt(text, 10, 62)
	if err != nil || !ok || job < 1 {
		return 0, "", muster.Errorf(muster.Invalid, "%q is not a cursor: write next of the page before", cursor)
	}
	at = muster.JobID(job)
	if from != "" {
		job++ // the job itself
	}
	q.Cursor = strconv.FormatInt(job, 10)
	return at, from, nil
}

// tasksOf adds tasks of a job until there are limit, and returns the cursor of the rest then.
func (s *server) tasksOf(ctx context.Context, job *muster.Job, states []muster.TaskState, from string, limit int, tasks *[]muster.Task) (next string, err error) {
	if !slices.ContainsFunc(states, func(st muster.TaskState) bool { return job.Counts[st] > 0 }) {
		return "", nil
	}
	if len(*tasks) == limit {
		return (job.ID + 1).String() + ".", nil
	}
	some, cursor, err := s.Store.Tasks(ctx, store.TaskQuery{Job: job.ID, States: states, Cursor: from, Limit: limit - len(*tasks)})
	if muster.CodeOf(err) == muster.NotFound {
		return "", nil // it was removed meanwhile
	}
	if err != nil {
		return "", err
	}
	for i := range some {
		linkArtifacts(some[i].ID, 0, some[i].Artifacts)
	}
	*tasks = append(*tasks, some...)
	if cursor != "" {
		cursor = job.ID.String() + "." + cursor
	}
	return cursor, nil
}
