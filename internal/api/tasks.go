package api

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/redact"
	"github.com/muster-dev/muster/internal/api/rest"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/dag"
	"github.com/muster-dev/muster/internal/store"
)

func (s *server) taskRoutes() {
	rest.Stream(s.router, rest.Route{ID: "exec-task", Method: http.MethodGet, Path: rest.Path("/tasks/{task}/exec"), Tag: "tasks", Verb: auth.ExecTasks, Audit: rest.AuditRead, Summary: "Execute a command in a running task, or copy its files, over a WebSocket"}, s.execTask)
	rest.Handle(s.router, rest.Route{ID: "list-tasks", Method: http.MethodGet, Path: rest.Path("/jobs/{job}/tasks"), Tag: "tasks", Shared: true,
		Summary: "List the tasks of a job, by number", Verb: auth.ReadJobs}, s.listTasks)
	rest.Handle(s.router, rest.Route{ID: "get-task", Method: http.MethodGet, Path: rest.Path("/tasks/{task}"), Tag: "tasks", Shared: true,
		Summary: "Show a task", Verb: auth.ReadJobs}, s.getTask)
	rest.Handle(s.router, rest.Route{ID: "list-attempts", Method: http.MethodGet, Path: rest.Path("/tasks/{task}/attempts"), Tag: "tasks", Shared: true,
		Summary: "List the attempts of a task", Verb: auth.ReadJobs}, s.listAttempts)
	rest.Handle(s.router, rest.Route{ID: "explain-task", Method: http.MethodGet, Path: rest.Path("/tasks/{task}/explain"), Tag: "tasks", Shared: true,
		Summary: "Explain the state of a task", Verb: auth.ReadJobs}, s.explainTask)
	rest.Handle(s.router, rest.Route{ID: "list-all-tasks", Method: http.MethodGet, Path: rest.Path("/tasks"), Tag: "tasks",
		Summary: "List tasks of all jobs by state, newest job first", Verb: auth.ReadJobs}, s.listAllTasks)
	rest.Handle(s.router, rest.Route{ID: "get-task-spec", Method: http.MethodGet, Path: rest.Path("/tasks/{task}/spec"), Tag: "tasks", Shared: true, Verb: auth.ReadJobs,
		Summary: "Show the spec of a task with the values of its element"}, s.taskSpec)
	rest.Handle(s.router, rest.Route{ID: "list-task-events", Method: http.MethodGet, Path: rest.Path("/tasks/{task}/events"), Tag: "tasks", Shared: true, Verb: auth.ReadJobs,
		Summary: "List the events of a task's lifecycle"}, s.taskEvents)
}

type listTasksInput struct {
	rest.JobPath
	rest.Page
	State []string `query:"state,explode" maxItems:"10" doc:"any of these" enum:"waiting,queued,assigned,running,cancelling,succeeded,failed,timed_out,cancelled,skipped"`
	Tasks string   `query:"tasks" maxLength:"10000" example:"0-9,12" doc:"task numbers and ranges"`

	Attempted bool `query:"attempted" doc:"only tasks that were assigned to a worker; a page may have fewer than limit"`
}

func (s *server) listTasks(ctx context.Context, in *listTasksInput) (*rest.Response[wire.Tasks], error) {
	q := store.TaskQuery{Job: in.ID(), Cursor: in.Cursor, Limit: in.Limit, StoredOnly: in.Attempted}
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
	if in.Attempted {
		tasks = slices.DeleteFunc(tasks, func(t muster.Task) bool { return t.Attempt == 0 })
	}
	for i := range tasks {
		linkArtifacts(tasks[i].ID, 0, tasks[i].Artifacts)
	}
	return rest.Respond(wire.Tasks{Tasks: nonNil(tasks), Next: next}), err
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

func (s *server) getTask(ctx context.Context, in *rest.TaskPath) (*rest.Response[muster.Task], error) {
	task, err := s.Store.Task(ctx, in.ID())
	linkArtifacts(task.ID, 0, task.Artifacts)
	return rest.Respond(task), err
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

func (s *server) listAttempts(ctx context.Context, in *rest.TaskPath) (*rest.Response[wire.Attempts], error) {
	attempts, err := s.Store.Attempts(ctx, in.ID())
	for _, a := range attempts {
		linkArtifacts(in.ID(), a.ID.N, a.Artifacts)
	}
	return rest.Respond(wire.Attempts{Attempts: nonNil(attempts)}), err
}

// linkArtifacts sets the URLs of artifacts; attempt 0 is the last one.
func linkArtifacts(id muster.TaskID, attempt int, artifacts []muster.Artifact) {
	for i := range artifacts {
		a := &artifacts[i]
		a.URL = muster.ArtifactPath(id, a.Name)
		if attempt > 0 {
			a.URL += "?attempt=" + strconv.Itoa(attempt)
		}
	}
}

// maxScannedJobs is the maximum number of jobs that one request scans. The answer is then short and has a cursor.
const maxScannedJobs = 2000

type listAllTasksInput struct {
	rest.Page
	State   []string `query:"state,explode" maxItems:"10" doc:"any of these; default: assigned, running and cancelling" enum:"waiting,queued,assigned,running,cancelling,succeeded,failed,timed_out,cancelled,skipped"`
	Project string   `query:"project" maxLength:"200"`
}

func (s *server) listAllTasks(ctx context.Context, in *listAllTasksInput) (*rest.Response[wire.Tasks], error) {
	states := []muster.TaskState{muster.Assigned, muster.Running, muster.Cancelling}
	if len(in.State) > 0 {
		var err error
		if states, err = parseTaskStates(in.State); err != nil {
			return nil, err
		}
	}
	q := store.JobQuery{Project: in.Project, Limit: 200}
	if !limitToProject(ctx, &q.Project) {
		return rest.Respond(wire.Tasks{Tasks: []muster.Task{}}), nil
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
				return rest.Respond(page), err
			}
		}
		if scanned += len(jobs); next == "" || scanned >= maxScannedJobs {
			if next != "" {
				page.Next = jobs[len(jobs)-1].ID.String() + "."
			}
			return rest.Respond(page), nil
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

const (
	// explanationTTL is how long an explanation is cached while the task's state is the same.
	explanationTTL = time.Second
	// maxExplanations is the number of cached explanations.
	maxExplanations = 1_000
)

// explanationKey is a task in a state.
type explanationKey struct {
	task    muster.TaskID
	state   muster.TaskState
	attempt int
}

func (s *server) explainTask(ctx context.Context, in *rest.TaskPath) (*rest.Response[muster.Explanation], error) {
	task, err := s.Store.Task(ctx, in.ID())
	if err != nil {
		return nil, err
	}
	if !task.State.Final() {
		x, err := s.explain(ctx, &task)
		if err == nil {
			return rest.Respond(x), nil
		}
		if muster.CodeOf(err) != muster.NotFound {
			return nil, err
		}
		latest, readErr := s.Store.Task(ctx, task.ID)
		if readErr != nil || !latest.State.Final() {
			return nil, err
		}
		task = latest // it has ended meanwhile
	}
	return rest.Respond(explainFinished(task)), nil
}

// explain returns the engine's explanation of an unfinished task, at most a second old.
func (s *server) explain(ctx context.Context, t *muster.Task) (muster.Explanation, error) {
	release, err := s.explainLimiter.acquire(ctx)
	if err != nil {
		return muster.Explanation{}, err
	}
	defer release()
	return s.explainCache.Value(explanationKey{t.ID, t.State, t.Attempt}).Get(ctx, explanationTTL, func(ctx context.Context) (muster.Explanation, error) {
		return s.Engine.Explain(ctx, t.ID)
	})
}

// explainFinished explains a finished task, which the engine no longer has.
func explainFinished(t muster.Task) muster.Explanation {
	summary := "Task " + t.ID.String() + " has ended: " + strings.ReplaceAll(t.State.String(), "_", " ")
	if t.Reason != muster.NoReason {
		summary += " (" + string(t.Reason) + ")"
	}
	if t.Message != "" {
		summary += ": " + t.Message
	}
	if t.Cached {
		summary += ", with the result of task " + t.Origin.String() + " from the cache"
	}
	return muster.Explanation{Task: t.ID, State: t.State, Summary: summary}
}

const (
	// maxEventAttempts is the maximum number of attempts in the events of a task, maxEventCheckpoints that of checkpoints per attempt.
	maxEventAttempts    = 200
	maxEventCheckpoints = 20
)

func (s *server) taskSpec(ctx context.Context, in *rest.TaskPath) (*rest.Response[wire.ElementSpec], error) {
	task, err := s.Store.Task(ctx, in.ID())
	if err != nil {
		return nil, err
	}
	job, err := s.Store.Job(ctx, task.Job)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(job.Groups, func(g muster.Group) bool { return g.Index == task.Group })
	if job.Spec == nil || i < 0 || task.Group >= len(job.Spec.Tasks) {
		return nil, muster.Errorf(muster.NotFound, "the spec of task %s is not stored", task.ID)
	}
	group := &job.Groups[i]
	spec := group.Resolved
	if spec == nil {
		spec = &job.Spec.Tasks[task.Group]
	}
	resp := wire.ElementSpec{Task: task.ID, Image: task.Image, Resolved: group.Resolved != nil || len(spec.Needs) == 0}
	resp.Spec = *dag.Bind(spec, task.ID.Num-group.First, func(num int, name, _ string) string {
		return muster.ArtifactPath(muster.TaskID{Job: task.Job, Num: num}, name) // only the task itself has the signed one
	})
	if p := principalOf(ctx); p.Job != 0 || auth.Can(p, auth.SubmitJobs, auth.Object{Project: job.Project}) != nil {
		resp.Spec = redact.Task(resp.Spec)
	}
	return rest.Respond(resp), nil
}

func (s *server) taskEvents(ctx context.Context, in *rest.TaskPath) (*rest.Response[wire.TaskEvents], error) {
	task, attempts, err := s.taskAttempts(ctx, in.ID())
	if err != nil {
		return nil, err
	}
	list := wire.TaskTimeline(&task, attempts[max(0, len(attempts)-maxEventAttempts):])
	if task.Checkpoint != "" {
		release, err := s.chartLimiter.acquire(ctx)
		if err != nil {
			return nil, err
		}
		defer release()
		for i := max(0, len(attempts)-maxMetricAttempts); i < len(attempts); i++ {
			m, err := s.readMetrics(ctx, &attempts[i], curveLimits{points: 10, bytes: maxMetricBytes})
			if err != nil {
				return nil, err
			}
			for _, at := range m.Checkpoints[max(0, len(m.Checkpoints)-maxEventCheckpoints):] {
				list = append(list, wire.TaskEvent{At: at, Type: wire.EventCheckpoint, Attempt: m.Attempt, Worker: attempts[i].Worker})
			}
		}
	}
	slices.SortStableFunc(list, func(a, b wire.TaskEvent) int { return cmp.Compare(a.At, b.At) })
	return rest.Respond(wire.TaskEvents{Events: nonNil(list)}), nil
}
