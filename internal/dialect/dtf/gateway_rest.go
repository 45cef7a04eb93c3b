package dtf

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/connlimit"
	"github.com/muster-dev/muster/internal/dialect"
	"github.com/muster-dev/muster/internal/dialect/lenient"
)

// Labels of workers.
const (
	labelHost   = "hostname"
	labelWorker = "dtf.worker" // its id in DTF
)

// Labels of jobs that DTF clients submitted.
const (
	labelDialect = "dialect"
	labelTask    = "dtf.task" // the client's id, if there is one
	labelType    = "dtf.type"
)

const (
	maxBody       = 1 << 20
	maxListed     = 1000
	maxRegistered = 1000
)

// requestKey returns the API key or token of a request: from its path, X-API-Key or Authorization.
func requestKey(r *http.Request) string {
	if c := dialect.CallerFromContext(r.Context()); c.Token != "" {
		return c.Token
	}
	return cmp.Or(r.Header.Get("X-API-Key"), auth.Bearer(r.Header.Get("Authorization")))
}

func (g *gateway) handler() http.Handler {
	return dialect.Routes(g.handlers(), writeError, func(w http.ResponseWriter, r *http.Request) {
		dialect.WriteJSON(w, http.StatusNotFound, map[string]string{"error": "Not found: " + lenient.Name(r.URL.Path)})
	})
}

// handlers returns what serves each route.
func (g *gateway) handlers() map[string]dialect.Handler {
	handlers := map[string]dialect.Handler{
		"GET /ws": g.socket, "GET /status": g.status, "GET /api/status": g.status,
		"GET /{$}": func(w http.ResponseWriter, _ *http.Request) error {
			return dialect.Reply(w, map[string]string{"name": "Muster, as a DTF coordinator", "version": g.Deps.Version, "status": "ok"})
		},
	}
	for pattern, route := range map[string]struct {
		roles  []string
		handle func(w http.ResponseWriter, r *http.Request, granted *access) error
	}{
		"POST /api/tasks":             {[]string{roleAdmin}, g.createTask},
		"GET /api/tasks":              {[]string{roleAdmin, roleObserver}, g.listTasks},
		"GET /api/tasks/{id}":         {[]string{roleAdmin, roleObserver}, g.showTask},
		"POST /api/tasks/{id}/cancel": {[]string{roleAdmin}, g.cancelTask},
		"GET /api/workers":            {[]string{roleAdmin, roleObserver}, g.listWorkers},
		"GET /workers":                {[]string{roleAdmin, roleObserver}, g.listWorkers},
		"GET /api/workers/{id}":       {[]string{roleAdmin, roleObserver, roleWorker}, g.showWorker},
		"POST /api/workers/register":  {[]string{roleWorker}, g.registerWorker},
	} {
		handlers[pattern] = func(w http.ResponseWriter, r *http.Request) error {
			granted, err := g.authorizeRequest(r)
			if err != nil {
				return err
			}
			defer connlimit.MarkAuthenticated(r.Context())()
			if !granted.hasRole(route.roles...) {
				return muster.Errorf(muster.Forbidden, "the key has none of the roles %s", strings.Join(route.roles, ", "))
			}
			r.Body = http.MaxBytesReader(w, r.Body, maxBody+1)
			return route.handle(w, r, granted)
		}
	}
	return handlers
}

func (g *gateway) authorizeRequest(r *http.Request) (*access, error) {
	key := requestKey(r)
	if strings.Count(key, ".") == 2 {
		if _, granted, _, err := g.authorizeToken(r.Context(), key, time.Now()); err == nil {
			return &access{id: granted.id, roles: []string{roleWorker}}, nil // a token has the rights of a worker only
		}
	}
	return g.authorize(r.Context(), key)
}

func writeError(w http.ResponseWriter, _ *http.Request, err error) {
	text := err.Error()
	if muster.CodeOf(err) == muster.Unauthenticated {
		text = "Authentication required"
	}
	dialect.WriteJSON(w, dialect.HTTPStatus(w, err), map[string]string{"error": text, "status": statusError, "message": err.Error()})
}

func (g *gateway) status(w http.ResponseWriter, _ *http.Request) error {
	return dialect.Reply(w, map[string]any{"status": "ok", "role": "leader", "workers": len(g.Fleet.Workers())})
}

type taskRequest struct {
	TaskID       string          `json:"task_id"` // an extension of Muster: the client's id
	Type         string          `json:"type"`
	Priority     *float64        `json:"priority"`
	Config       json.RawMessage `json:"config"`
	Requirements requirements    `json:"requirements"`
}

type requirements struct {
	Hardware []string `json:"hardware"`
	MemoryGB float64  `json:"min_memory_gb"`
	Compute  float64  `json:"min_cuda_compute"`
	Device   string   `json:"device"`
	CPUs     float64  `json:"min_cpu_cores"`
	Tags     []string `json:"tags"`
	WorkerID string   `json:"worker_id"`
}

func (g *gateway) spec(q *taskRequest) (*muster.Spec, error) {
	if q.Type == "" {
		return nil, muster.Errorf(muster.Invalid, "Missing required field: type")
	}
	if err := checkID("task_id", q.TaskID); err != nil {
		return nil, err
	}
	if len(q.TaskID) > muster.MaxNameSize {
		return nil, muster.Errorf(muster.Invalid, "task_id exceeds %d bytes", muster.MaxNameSize)
	}
	toStage := toForeign
	if !g.settings.passThrough {
		toStage = toMuster
	}
	stage, err := toStage(q.Type, q.Config)
	if err != nil {
		return nil, err
	}
	if err := q.Requirements.apply(&stage); err != nil {
		return nil, err
	}
	s := &muster.Spec{
		Name: lenient.Name("dtf-" + q.Type), Project: g.Deps.Config.Project, Tasks: []muster.TaskSpec{stage},
		Labels: map[string]string{labelDialect: "dtf", labelType: lenient.Name(q.Type)},
	}
	if q.TaskID != "" {
		s.Labels[labelTask] = q.TaskID
	}
	if p := q.Priority; p != nil { // DTF's default is 1
		s.Priority = new(int(min(max(muster.DefaultPriority+*p-1, muster.MinPriority), muster.MaxPriority)))
	}
	return s, nil
}

func (q *requirements) apply(stage *muster.TaskSpec) error {
	for _, h := range q.Hardware {
		switch h = strings.ToLower(h); h {
		case "cpu":
		case "cuda":
			stage.Resources.GPUs.Count, stage.Resources.GPUs.Vendor = 1, "nvidia"
		case "rocm":
			stage.Resources.GPUs.Count, stage.Resources.GPUs.Vendor = 1, "amd"
		case "gpu":
			stage.Resources.GPUs.Count = 1
		default:
			stage.Where.Tags = append(stage.Where.Tags, sanitizeTag(h))
		}
	}
	for _, t := range q.Tags {
		stage.Where.Tags = append(stage.Where.Tags, sanitizeTag(t))
	}
	if q.WorkerID != "" {
		return muster.Errorf(muster.Invalid, "requirements.worker_id is not supported: use hardware or tags")
	}
	if !(q.MemoryGB >= 0 && q.MemoryGB <= maxGB) || !(q.CPUs >= 0 && q.CPUs <= maxCores) || !(q.Compute >= 0 && q.Compute <= 100) {
		return muster.Errorf(muster.Invalid, "requirements: min_memory_gb, min_cuda_compute or min_cpu_cores is out of range")
	}
	stage.Resources.Memory, stage.Resources.CPUs = gbToSize(q.MemoryGB), q.CPUs
	if q.Compute > 0 {
		i := slices.IndexFunc(computes, func(v float64) bool { return v >= q.Compute })
		if i < 0 {
			return muster.Errorf(muster.Invalid, "requirements.min_cuda_compute: no device has %v", q.Compute)
		}
		stage.Where.Tags = append(stage.Where.Tags, computeTag(computes[i]))
		stage.Resources.GPUs.Count = max(stage.Resources.GPUs.Count, 1)
	}
	if q.Device != "" && !strings.EqualFold(q.Device, "cpu") {
		stage.Resources.GPUs.Count = max(stage.Resources.GPUs.Count, 1)
		if !slices.Contains([]string{"gpu", "cuda", "rocm"}, strings.ToLower(q.Device)) {
			stage.Resources.GPUs.Model = q.Device
		}
	}
	return nil
}

func (g *gateway) createTask(w http.ResponseWriter, r *http.Request, granted *access) error {
	q := new(taskRequest)
	if err := dialect.Decode(r, maxBody, q); err != nil {
		return err
	}
	s, err := g.spec(q)
	if err != nil {
		return err
	}
	c, err := g.Deps.Server.Client(granted.token)
	if err != nil {
		return err
	}
	o := client.SubmitOptions{}
	if q.TaskID != "" {
		o.IdempotencyKey = "dtf:" + sha256Hex(granted.id + "\n" + q.TaskID)[:40]
	}
	j, err := c.Submit(r.Context(), s, o)
	if err != nil {
		return err
	}
	// R0 has created, R1 has success.
	return dialect.Reply(w, map[string]any{
		"status": statusSuccess, "created": true, "task_id": wireTaskID(&j), "message": "Task created successfully", "job": j.ID,
	})
}

func wireTaskID(j *muster.Job) string { return cmp.Or(j.Labels[labelTask], j.ID.String()) }

// findJob returns the job with this id of DTF clients.
func (g *gateway) findJob(ctx context.Context, c *client.Client, id string) (muster.Job, error) {
	notFound := muster.Errorf(muster.NotFound, "Task not found: %s", lenient.Name(id))
	if checkID("task_id", id) != nil || id == "" || len(id) > muster.MaxNameSize {
		return muster.Job{}, notFound
	}
	for j, err := range c.Jobs(ctx, client.JobQuery{Labels: map[string]string{labelDialect: "dtf", labelTask: id}, Page: 1}) {
		if err != nil {
			return muster.Job{}, err
		}
		return c.Job(ctx, j.ID)
	}
	n, err := muster.ParseJobID(id)
	if err != nil {
		return muster.Job{}, notFound
	}
	j, err := c.Job(ctx, n)
	if err != nil || j.Labels[labelDialect] != "dtf" || j.Labels[labelTask] != "" {
		if err != nil && muster.CodeOf(err) != muster.NotFound {
			return muster.Job{}, err
		}
		return muster.Job{}, notFound
	}
	return j, nil
}

// requestedJob returns the job of a request, and a client with the rights of its sender.
func (g *gateway) requestedJob(r *http.Request, granted *access) (*client.Client, muster.Job, error) {
	c, err := g.Deps.Server.Client(granted.token)
	if err != nil {
		return nil, muster.Job{}, err
	}
	j, err := g.findJob(r.Context(), c, r.PathValue("id"))
	return c, j, err
}

type taskView struct {
	ID           string          `json:"task_id"`
	Type         string          `json:"type"`
	Status       string          `json:"status"`
	Created      *string         `json:"created"`
	Started      *string         `json:"started"`
	Ended        *string         `json:"ended"`
	Worker       *string         `json:"worker_id"`
	Priority     int             `json:"priority"`
	Config       json.RawMessage `json:"config"`
	Requirements json.RawMessage `json:"requirements"`
	Result       json.RawMessage `json:"result"`
	Error        *string         `json:"error"`
	Progress     *float64        `json:"progress,omitempty"`
	Job          muster.JobID    `json:"job"`
}

func formatTime(t muster.Time) *string {
	if t == 0 {
		return nil
	}
	return lenient.NonZero(lenient.NaiveUTC(t.Std()))
}

// workerIDs maps Muster's ids of workers to DTF's.
func workerIDs(ctx context.Context, c *client.Client) (map[muster.WorkerID]string, error) {
	all, err := c.Workers(ctx)
	if err != nil {
		return nil, err
	}
	ids := map[muster.WorkerID]string{}
	for i := range all {
		if id := all[i].Labels[labelWorker]; id != "" {
			ids[all[i].ID] = id
		}
	}
	return ids, nil
}

// viewTask returns a job's task for clients. ids is of workerIDs.
func (g *gateway) viewTask(ctx context.Context, c *client.Client, j *muster.Job, ids map[muster.WorkerID]string) (*taskView, error) {
	t, err := c.Task(ctx, muster.TaskID{Job: j.ID})
	if err != nil {
		return nil, err
	}
	out := &taskView{
		ID: wireTaskID(j), Type: j.Labels[labelType], Status: wireStatus(t.State), Created: formatTime(j.CreatedAt), Started: formatTime(t.StartedAt), Ended: formatTime(t.FinishedAt),
		Priority: j.Priority - muster.DefaultPriority + 1, Config: json.RawMessage("{}"), Requirements: json.RawMessage("{}"), Job: j.ID,
	}
	if j.Spec != nil && len(j.Spec.Tasks) == 1 {
		if _, config, err := fromMuster(&j.Spec.Tasks[0]); err == nil && len(config) > 0 {
			out.Config = config
		}
		out.Requirements = lenient.MustMarshal(j.Spec.Tasks[0].Resources)
	}
	if t.Worker != "" {
		out.Worker = new(cmp.Or(ids[t.Worker], string(t.Worker)))
	}
	if t.State.Final() && len(t.Result) > 0 {
		out.Result = t.Result
		if t.Kind != kindForeign {
			out.Result = toDTF(t.Kind, out.Config, t.Result)
		}
	}
	if t.Message != "" && t.State != muster.Succeeded {
		out.Error = &t.Message
	}
	if t.Progress != nil && !t.State.Final() {
		out.Progress = new(*t.Progress * 100)
	}
	return out, nil
}

func wireStatus(s muster.TaskState) string {
	switch s {
	case muster.Waiting, muster.Queued:
		return statusPending
	case muster.Assigned, muster.Running:
		return statusRunning
	case muster.Cancelling:
		return statusCancelling
	case muster.Succeeded:
		return statusCompleted
	case muster.Cancelled, muster.Skipped:
		return statusCancelled
	case muster.Failed, muster.TimedOut:
	}
	return statusFailed
}

func (g *gateway) showTask(w http.ResponseWriter, r *http.Request, granted *access) error {
	c, j, err := g.requestedJob(r, granted)
	if err != nil {
		return err
	}
	ids, err := workerIDs(r.Context(), c)
	if err != nil {
		return err
	}
	t, err := g.viewTask(r.Context(), c, &j, ids)
	if err != nil {
		return err
	}
	return dialect.Reply(w, t)
}

func (g *gateway) listTasks(w http.ResponseWriter, r *http.Request, granted *access) error {
	ctx := r.Context()
	c, err := g.Deps.Server.Client(granted.token)
	if err != nil {
		return err
	}
	q := r.URL.Query()
	limit, err := queryNumber(q.Get("limit"), 100, maxListed)
	if err != nil {
		return err
	}
	offset, err := queryNumber(q.Get("offset"), 0, 1<<30)
	if err != nil {
		return err
	}
	wanted := map[string]string{labelDialect: "dtf"}
	if t := q.Get("type"); t != "" {
		wanted[labelType] = lenient.Name(t)
	}
	ids, err := workerIDs(ctx, c)
	if err != nil {
		return err
	}
	list := []*taskView{}
	scanned := 0
	for j, err := range c.Jobs(ctx, client.JobQuery{Labels: wanted, Project: g.Deps.Config.Project}) {
		if err != nil {
			return err
		}
		if scanned++; len(list) == limit || scanned > 10*maxListed {
			break
		}
		full, err := c.Job(ctx, j.ID)
		if err != nil {
			continue // removed in the meantime
		}
		t, err := g.viewTask(ctx, c, &full, ids)
		if err != nil || q.Get("status") != "" && t.Status != q.Get("status") || q.Get("worker_id") != "" && (t.Worker == nil || *t.Worker != q.Get("worker_id")) {
			continue
		}
		if offset > 0 {
			offset--
			continue
		}
		list = append(list, t)
	}
	return dialect.Reply(w, map[string]any{"tasks": list, "total": len(list)})
}

func queryNumber(s string, fallback, limit int) (int, error) {
	if s == "" {
		return fallback, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 || n > limit {
		return 0, muster.Errorf(muster.Invalid, "%q is not a number from 0 to %d", lenient.Name(s), limit)
	}
	return n, nil
}

func (g *gateway) cancelTask(w http.ResponseWriter, r *http.Request, granted *access) error {
	c, j, err := g.requestedJob(r, granted)
	if err != nil {
		return err
	}
	if j, err = c.Cancel(r.Context(), j.ID, nil); err != nil {
		return err
	}
	return dialect.Reply(w, map[string]any{"status": statusSuccess, "success": true, "task_id": wireTaskID(&j), "message": "Task cancelled"})
}
