package client

import (
	"context"
	"crypto/rand"
	"iter"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/wire"
)

type (
	// Key is an API key without its secret.
	Key = wire.Key
	// NewKey asks for an API key.
	NewKey = wire.NewKey
	// RotateKey asks for a new secret of a key.
	RotateKey = wire.RotateKey
	// MadeKey is a new API key with its secret.
	MadeKey = wire.MadeKey
	// Whoami describes the caller and the server.
	Whoami = wire.Whoami
	// Schedule submits a job at the times of a cron expression.
	Schedule = wire.Schedule
	// CacheEntry is a result in the cache of a project.
	CacheEntry = wire.CacheEntry
	// TaskCache says how a task uses the result cache.
	TaskCache = wire.TaskCache
	// CacheDifferent is a part of what determines the result in which a task and an entry differ.
	CacheDifferent = wire.CacheDifferent
	// CacheCleared is what a request deleted.
	CacheCleared = wire.CacheCleared
	// ScheduleRun is what was decided about a run of a schedule.
	ScheduleRun = wire.ScheduleRun
	// NewSchedule is a schedule to create or to replace.
	NewSchedule = wire.NewSchedule
	// Secret describes a secret of a project.
	Secret = wire.Secret
	// ProjectNotify is the notifications of a project.
	ProjectNotify = wire.ProjectNotify
	// Delivery is one request to a webhook.
	Delivery = wire.Delivery
	// Series is the usage of an attempt over time.
	Series = wire.Series
	// TaskEvent is an event of a task's lifecycle.
	TaskEvent = wire.TaskEvent
	// Span is the task numbers First to Last.
	Span = muster.Span
)

// get reads the resource at path. query may be nil.
func get[T any](ctx context.Context, c *Client, path string, query url.Values) (T, error) {
	var out T
	err := c.do(ctx, call{method: http.MethodGet, path: path, query: query, out: &out, idempotent: true})
	return out, err
}

// post sends body, unless it is nil, and returns the answer.
func post[T any](ctx context.Context, c *Client, path string, body any, idempotent bool) (T, error) {
	var out T
	err := c.do(ctx, call{method: http.MethodPost, path: path, body: body, out: &out, idempotent: idempotent})
	return out, err
}

// pages lists rows page by page, of size rows each; 0 means the server's default.
func pages[T any](v url.Values, size int, fetch func(url.Values) ([]T, string, error)) iter.Seq2[T, error] {
	setInt(v, "limit", min(size, wire.MaxPage))
	return func(yield func(T, error) bool) {
		v := maps.Clone(v)
		for {
			rows, next, err := fetch(v)
			if err != nil {
				var zero T
				yield(zero, err)
				return
			}
			for _, r := range rows {
				if !yield(r, nil) {
					return
				}
			}
			if next == "" {
				return
			}
			v.Set("cursor", next)
		}
	}
}

// set sets a parameter, unless the value is blank.
func set(v url.Values, key, value string) {
	if value = strings.TrimSpace(value); value != "" {
		v.Set(key, value)
	}
}

// setInt sets a parameter, unless n is 0 or less.
func setInt(v url.Values, key string, n int) {
	if n > 0 {
		v.Set(key, strconv.Itoa(n))
	}
}

// setTime sets a parameter, unless t is zero.
func setTime(v url.Values, key string, t time.Time) {
	if !t.IsZero() {
		v.Set(key, t.Format(time.RFC3339Nano))
	}
}

func jobPath(id muster.JobID) string    { return "/jobs/" + id.String() }
func taskPath(id muster.TaskID) string  { return "/tasks/" + id.String() }
func workerPath(idOrName string) string { return "/workers/" + url.PathEscape(idOrName) }

// projectPath returns the path of a collection of a project, or of one entry of it if name is not "".
func projectPath(project, collection, name string) string {
	path := "/projects/" + url.PathEscape(project) + "/" + collection
	if name != "" {
		path += "/" + url.PathEscape(name)
	}
	return path
}

// SubmitOptions are options of Submit.
type SubmitOptions struct {
	IdempotencyKey string // repeated calls with the same key create one job; default: a new key

	Rerun muster.JobID // an earlier job of the project, whose results the job takes for the stages before From; 0 means none
	From  string       // with Rerun: the first stage that runs again, with all that need it
}

// Submit submits a job. The spec must not refer to local files: see UploadFolder.
func (c *Client) Submit(ctx context.Context, s *muster.Spec, o SubmitOptions) (muster.Job, error) {
	if o.IdempotencyKey == "" {
		o.IdempotencyKey = rand.Text()
	}
	query := url.Values{}
	if o.Rerun != 0 {
		query = url.Values{"rerun": {o.Rerun.String()}, "from": {o.From}}
	}
	var job muster.Job
	err := c.do(ctx, call{
		method: http.MethodPost, path: "/jobs", query: query, body: s, out: &job, idempotent: true,
		header: http.Header{wire.HeaderIdempotency: {o.IdempotencyKey}},
	})
	return job, err
}

// Plan explains where the first task of each stage would run if s were submitted now.
func (c *Client) Plan(ctx context.Context, s *muster.Spec) ([]muster.Explanation, error) {
	plan, err := post[wire.Plan](ctx, c, "/plan", s, true)
	return plan.Stages, err
}

// Job returns one job with its spec and groups.
func (c *Client) Job(ctx context.Context, id muster.JobID) (muster.Job, error) {
	return get[muster.Job](ctx, c, jobPath(id), nil)
}

// PreviousJob returns the newest older job of the same project and name, with its spec and groups.
func (c *Client) PreviousJob(ctx context.Context, id muster.JobID) (muster.Job, error) {
	return get[muster.Job](ctx, c, jobPath(id)+"/previous", nil)
}

// JobQuery selects jobs. The zero value selects all.
type JobQuery struct {
	States  []muster.JobState // any if empty
	Project string
	Name    string            // part of the name
	Labels  map[string]string // the job has all of them
	Kind    string
	Owner   string    // id of the key that submitted it
	Since   time.Time // created then or later
	Until   time.Time // created then or earlier
	Oldest  bool      // oldest first
	Page    int       // rows per request; default 100
}

// Jobs lists jobs, newest first unless q.Oldest is set. An error ends the sequence.
func (c *Client) Jobs(ctx context.Context, q JobQuery) iter.Seq2[muster.Job, error] {
	v := url.Values{}
	for _, s := range q.States {
		v.Add("state", string(s))
	}
	for _, k := range slices.Sorted(maps.Keys(q.Labels)) {
		v.Add("label", k+"="+q.Labels[k])
	}
	set(v, "project", q.Project)
	set(v, "name", q.Name)
	set(v, "kind", q.Kind)
	set(v, "owner", q.Owner)
	setTime(v, "since", q.Since)
	setTime(v, "until", q.Until)
	if q.Oldest {
		v.Set("order", "oldest")
	}
	return pages(v, q.Page, func(v url.Values) ([]muster.Job, string, error) {
		page, err := get[wire.Jobs](ctx, c, "/jobs", v)
		return page.Jobs, page.Next, err
	})
}

// Cancel stops tasks of a job, all of them if spans is nil, and returns the job.
func (c *Client) Cancel(ctx context.Context, id muster.JobID, spans []Span) (muster.Job, error) {
	return post[muster.Job](ctx, c, jobPath(id)+"/cancel", wire.Selection{Tasks: wire.FormatSpans(spans)}, false)
}

// Retry queues finished tasks that did not succeed again, all of them if spans is
// nil, and returns the job.
func (c *Client) Retry(ctx context.Context, id muster.JobID, spans []Span) (muster.Job, error) {
	return post[muster.Job](ctx, c, jobPath(id)+"/retry", wire.Selection{Tasks: wire.FormatSpans(spans)}, false)
}

// EditJob changes the priority of a job that has not ended, or holds or releases it, and returns the job.
func (c *Client) EditJob(ctx context.Context, id muster.JobID, e wire.JobEdit) (muster.Job, error) {
	return post[muster.Job](ctx, c, jobPath(id)+"/edit", e, true)
}

// LateReports lists the reports of a job that came after the server had given up their attempts, at most 100.
func (c *Client) LateReports(ctx context.Context, id muster.JobID) ([]muster.LateReport, error) {
	list, err := get[wire.Late](ctx, c, jobPath(id)+"/late", nil)
	return list.Late, err
}

// TaskQuery selects tasks of a job. The zero value selects all.
type TaskQuery struct {
	States []muster.TaskState // any if empty
	Spans  []Span             // any if empty
	Page   int                // rows per request; default 100

	Attempted bool // only tasks that were assigned to a worker
}

// Tasks lists tasks of a job by number. An error ends the sequence.
func (c *Client) Tasks(ctx context.Context, job muster.JobID, q TaskQuery) iter.Seq2[muster.Task, error] {
	v := url.Values{}
	set(v, "tasks", wire.FormatSpans(q.Spans))
	if q.Attempted {
		v.Set("attempted", "true")
	}
	return c.listTasks(ctx, jobPath(job)+"/tasks", v, q.States, q.Page)
}

// AllTasks lists the tasks of all jobs in one of states, newest job first. Without states it
// lists the tasks that workers have. An error ends the sequence.
func (c *Client) AllTasks(ctx context.Context, states []muster.TaskState, page int) iter.Seq2[muster.Task, error] {
	return c.listTasks(ctx, "/tasks", url.Values{}, states, page)
}

func (c *Client) listTasks(ctx context.Context, path string, v url.Values, states []muster.TaskState, size int) iter.Seq2[muster.Task, error] {
	for _, s := range states {
		v.Add("state", s.String())
	}
	return pages(v, size, func(v url.Values) ([]muster.Task, string, error) {
		page, err := get[wire.Tasks](ctx, c, path, v)
		return page.Tasks, page.Next, err
	})
}

// Task returns one task.
func (c *Client) Task(ctx context.Context, id muster.TaskID) (muster.Task, error) {
	return get[muster.Task](ctx, c, taskPath(id), nil)
}

// Attempts lists all attempts of a task by number, including the current one.
func (c *Client) Attempts(ctx context.Context, id muster.TaskID) ([]muster.Attempt, error) {
	list, err := get[wire.Attempts](ctx, c, taskPath(id)+"/attempts", nil)
	return list.Attempts, err
}

// EventFinished is the type of the last TaskEvent of a task that has ended.
const EventFinished = wire.EventFinished

// TaskEvents lists the events of a task's lifecycle so far, in order of time.
func (c *Client) TaskEvents(ctx context.Context, id muster.TaskID) ([]TaskEvent, error) {
	list, err := get[wire.TaskEvents](ctx, c, taskPath(id)+"/events", nil)
	return list.Events, err
}

// Explain explains the state of a task.
func (c *Client) Explain(ctx context.Context, id muster.TaskID) (muster.Explanation, error) {
	return get[muster.Explanation](ctx, c, taskPath(id)+"/explain", nil)
}

// Usage returns the usage of an attempt so far; attempt 0 is the last one. It
// reduces a long series to the given number of points and keeps its peaks; 0 means 1000.
func (c *Client) Usage(ctx context.Context, id muster.TaskID, attempt, points int) (Series, error) {
	q := url.Values{}
	setInt(q, "attempt", attempt)
	setInt(q, "points", points)
	return get[Series](ctx, c, taskPath(id)+"/usage", q)
}

// Metrics returns what the attempts of a task reported so far. It reduces each attempt to the given number of points and keeps
// its peaks; 0 means 1000.
func (c *Client) Metrics(ctx context.Context, id muster.TaskID, points int) (wire.Metrics, error) {
	q := url.Values{}
	setInt(q, "points", points)
	return get[wire.Metrics](ctx, c, taskPath(id)+"/metrics", q)
}

// LogPosition is a place in the log of an attempt.
type LogPosition struct {
	Attempt  int   // 0 means the last one
	Offset   int64 // in bytes; -1 means the end, or the beginning if it is not Backward
	Backward bool  // read what is before Offset
}

func (p LogPosition) query() url.Values {
	q := url.Values{"offset": {strconv.FormatInt(p.Offset, 10)}}
	setInt(q, "attempt", p.Attempt)
	if p.Backward {
		q.Set("direction", "backward")
	}
	return q
}

// LogWindow reads at most the given number of bytes of a log, but at least one record if there is one.
func (c *Client) LogWindow(ctx context.Context, id muster.TaskID, pos LogPosition, bytes int) (wire.LogWindow, error) {
	q := pos.query()
	q.Set("bytes", strconv.Itoa(bytes))
	return get[wire.LogWindow](ctx, c, taskPath(id)+"/logs/window", q)
}

// SearchLog finds the next records that contain a text, at most limit. It searches for 2 seconds at most: the answer says how far it got.
func (c *Client) SearchLog(ctx context.Context, id muster.TaskID, pos LogPosition, text string, caseSensitive bool, limit int) (wire.LogMatches, error) {
	q := pos.query()
	q.Set("q", text)
	q.Set("limit", strconv.Itoa(limit))
	q.Set("case", strconv.FormatBool(caseSensitive))
	return get[wire.LogMatches](ctx, c, taskPath(id)+"/logs/search", q)
}

// Workers lists all workers by name.
func (c *Client) Workers(ctx context.Context) ([]muster.Worker, error) {
	list, err := get[wire.Workers](ctx, c, "/workers", nil)
	return list.Workers, err
}

// Worker returns one worker by its id, or by its name if that is unique.
func (c *Client) Worker(ctx context.Context, idOrName string) (muster.Worker, error) {
	return get[muster.Worker](ctx, c, workerPath(idOrName), nil)
}

// PauseWorker stops assigning tasks to a worker, for the duration or, if that is nil, until
// it is resumed. Its running tasks continue.
func (c *Client) PauseWorker(ctx context.Context, idOrName string, duration *muster.Duration) (muster.Worker, error) {
	return post[muster.Worker](ctx, c, workerPath(idOrName)+"/pause", wire.Pause{For: duration}, true)
}

// ResumeWorker ends a pause or a drain.
func (c *Client) ResumeWorker(ctx context.Context, idOrName string) (muster.Worker, error) {
	return post[muster.Worker](ctx, c, workerPath(idOrName)+"/resume", nil, true)
}

// DrainWorker lets a worker finish its tasks and then leave. After the deadline, unless it
// is nil, running tasks are stopped and requeued.
func (c *Client) DrainWorker(ctx context.Context, idOrName string, deadline *muster.Duration) (muster.Worker, error) {
	return post[muster.Worker](ctx, c, workerPath(idOrName)+"/drain", wire.Drain{Deadline: deadline}, true)
}

// ApproveWorker lets a pending worker take tasks.
func (c *Client) ApproveWorker(ctx context.Context, idOrName string) (muster.Worker, error) {
	return post[muster.Worker](ctx, c, workerPath(idOrName)+"/approve", nil, true)
}

// ResetWorker revokes the key of a worker, and returns a join token with which it joins again under its id.
func (c *Client) ResetWorker(ctx context.Context, idOrName string) (MadeKey, error) {
	return post[MadeKey](ctx, c, workerPath(idOrName)+"/reset", nil, false)
}

// HealWorker lets a worker check its quarantined GPUs again: those named by UUID or
// index, or all. The result appears in the worker's GPUs later.
func (c *Client) HealWorker(ctx context.Context, idOrName string, gpus ...string) (muster.Worker, error) {
	return post[muster.Worker](ctx, c, workerPath(idOrName)+"/heal", wire.Heal{GPUs: gpus}, true)
}

// RemoveWorker deletes a worker that is not connected, and revokes its key.
func (c *Client) RemoveWorker(ctx context.Context, idOrName string) error {
	return c.do(ctx, call{method: http.MethodDelete, path: workerPath(idOrName)})
}

// Overview returns the current state of the fleet and its work, with the list of all GPUs if gpus is set.
func (c *Client) Overview(ctx context.Context, gpus bool) (wire.Overview, error) {
	q := url.Values{}
	if !gpus {
		q.Set("gpus", "false")
	}
	return get[wire.Overview](ctx, c, "/overview", q)
}

// HistoryQuery selects a part of the load history. The zero value selects the last hour of the whole fleet.
type HistoryQuery struct {
	Worker   string // id, or name if that is unique; "" means the fleet
	From, To time.Time
	Points   int // approximate maximum; 0 means 300
}

// History returns the load of the fleet or of a worker over time.
func (c *Client) History(ctx context.Context, q HistoryQuery) (wire.History, error) {
	v := url.Values{}
	set(v, "worker", q.Worker)
	setTime(v, "from", q.From)
	setTime(v, "to", q.To)
	setInt(v, "points", q.Points)
	return get[wire.History](ctx, c, "/history", v)
}

// Kinds lists the kinds of tasks by name.
func (c *Client) Kinds(ctx context.Context) ([]wire.Kind, error) {
	list, err := get[wire.Kinds](ctx, c, "/kinds", nil)
	return list.Kinds, err
}

// Kind returns one kind, by its full name, with the workers that offer it.
func (c *Client) Kind(ctx context.Context, name string) (wire.Kind, error) {
	return get[wire.Kind](ctx, c, "/kinds/"+url.PathEscape(name), nil)
}

// CreateKey creates an API key. Only this answer has its secret.
func (c *Client) CreateKey(ctx context.Context, k NewKey) (MadeKey, error) {
	return post[MadeKey](ctx, c, "/keys", k, false)
}

// Keys lists all API keys, without secrets.
func (c *Client) Keys(ctx context.Context) ([]Key, error) {
	list, err := get[wire.Keys](ctx, c, "/keys", nil)
	return list.Keys, err
}

// RotateKey gives a key a new secret. Old ones end at once or after an overlap.
func (c *Client) RotateKey(ctx context.Context, id string, how RotateKey) (MadeKey, error) {
	return post[MadeKey](ctx, c, "/keys/"+url.PathEscape(id)+"/rotate", how, false)
}

// RevokeKey revokes a key at once.
func (c *Client) RevokeKey(ctx context.Context, id string) error {
	return c.do(ctx, call{method: http.MethodDelete, path: "/keys/" + url.PathEscape(id)})
}

// RevokeJoinToken is RevokeKey for a key by which workers joined, whose own keys it revokes, too. The key may be revoked already.
func (c *Client) RevokeJoinToken(ctx context.Context, id string) error {
	return c.do(ctx, call{method: http.MethodDelete, path: "/keys/" + url.PathEscape(id), query: url.Values{"workers": {"true"}}})
}

// Whoami returns who the caller is and the server's version.
func (c *Client) Whoami(ctx context.Context) (Whoami, error) {
	return get[Whoami](ctx, c, "/whoami", nil)
}

// Schedules lists the schedules of a project, or all if it is "".
func (c *Client) Schedules(ctx context.Context, project string) ([]Schedule, error) {
	v := url.Values{}
	set(v, "project", project)
	list, err := get[wire.Schedules](ctx, c, "/schedules", v)
	return list.Schedules, err
}

// CreateSchedule creates or replaces a schedule. It is not repeated if its answer is lost, unless it replaces one.
func (c *Client) CreateSchedule(ctx context.Context, project string, n NewSchedule) (Schedule, error) {
	return post[Schedule](ctx, c, projectPath(project, "schedules", ""), n, n.Replace)
}

// Schedule returns a schedule with its last runs and its spec.
func (c *Client) Schedule(ctx context.Context, project, name string) (Schedule, error) {
	return get[Schedule](ctx, c, projectPath(project, "schedules", name), nil)
}

// PauseSchedule pauses a schedule or resumes it.
func (c *Client) PauseSchedule(ctx context.Context, project, name string, paused bool) (Schedule, error) {
	action := "/resume"
	if paused {
		action = "/pause"
	}
	return post[Schedule](ctx, c, projectPath(project, "schedules", name)+action, nil, true)
}

// RunSchedule submits a job of a schedule now.
func (c *Client) RunSchedule(ctx context.Context, project, name string) (muster.Job, error) {
	var job muster.Job
	err := c.do(ctx, call{
		method: http.MethodPost, path: projectPath(project, "schedules", name) + "/run", out: &job, idempotent: true, header: http.Header{wire.HeaderIdempotency: {rand.Text()}},
	})
	return job, err
}

// DeleteSchedule deletes a schedule, not its jobs.
func (c *Client) DeleteSchedule(ctx context.Context, project, name string) error {
	return c.do(ctx, call{method: http.MethodDelete, path: projectPath(project, "schedules", name)})
}

// Secrets lists the secrets of a project, without their values.
func (c *Client) Secrets(ctx context.Context, project string) ([]Secret, error) {
	list, err := get[wire.Secrets](ctx, c, projectPath(project, "secrets", ""), nil)
	return list.Secrets, err
}

// SetSecret sets a secret of a project for all workers, or only for those with all of the tags workers.
func (c *Client) SetSecret(ctx context.Context, project, name, value string, workers []string) (Secret, error) {
	var s Secret
	err := c.do(ctx, call{method: http.MethodPut, path: projectPath(project, "secrets", name), body: wire.NewSecret{Value: value, Workers: workers}, out: &s, idempotent: true})
	return s, err
}

// DeleteSecret deletes a secret of a project.
func (c *Client) DeleteSecret(ctx context.Context, project, name string) error {
	return c.do(ctx, call{method: http.MethodDelete, path: projectPath(project, "secrets", name)})
}

// ProjectNotify returns the notifications of a project.
func (c *Client) ProjectNotify(ctx context.Context, project string) (ProjectNotify, error) {
	return get[ProjectNotify](ctx, c, projectPath(project, "notify", ""), nil)
}

// SetProjectNotify replaces the notifications of a project.
func (c *Client) SetProjectNotify(ctx context.Context, project string, list []muster.Notify) (ProjectNotify, error) {
	if list == nil {
		list = []muster.Notify{}
	}
	var p ProjectNotify
	err := c.do(ctx, call{method: http.MethodPut, path: projectPath(project, "notify", ""), body: wire.Notifications{Notify: list}, out: &p, idempotent: true})
	return p, err
}

// DeleteProjectNotify deletes the notifications of a project.
func (c *Client) DeleteProjectNotify(ctx context.Context, project string) error {
	return c.do(ctx, call{method: http.MethodDelete, path: projectPath(project, "notify", ""), idempotent: true})
}

// TestNotify sends a test to the project's notification with the given URL, or to all if it is "".
func (c *Client) TestNotify(ctx context.Context, project, to string) ([]Delivery, error) {
	sent, err := post[wire.Deliveries](ctx, c, projectPath(project, "notify", "")+"/test", wire.TestNotify{URL: to}, false)
	return sent.Deliveries, err
}

// DeliveryQuery selects deliveries. The zero value selects all.
type DeliveryQuery struct {
	Project string
	Job     muster.JobID
	State   string // pending, delivered or failed
	Page    int    // rows per request; default 100
}

// Deliveries lists the delivery log, newest first. An error ends the sequence.
func (c *Client) Deliveries(ctx context.Context, q DeliveryQuery) iter.Seq2[Delivery, error] {
	v := url.Values{}
	set(v, "project", q.Project)
	set(v, "state", q.State)
	if q.Job != 0 {
		v.Set("job", q.Job.String())
	}
	return pages(v, q.Page, func(v url.Values) ([]Delivery, string, error) {
		page, err := get[wire.Deliveries](ctx, c, "/notifications", v)
		return page.Deliveries, page.Next, err
	})
}
