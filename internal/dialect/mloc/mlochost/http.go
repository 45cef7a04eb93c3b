package mlochost

import (
	"cmp"
	"crypto/hmac"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/dialect"
	"github.com/muster-dev/muster/internal/dialect/lenient"
	"github.com/muster-dev/muster/internal/dialect/mloc"
)

func (g *Gateway) handler() http.Handler {
	return dialect.Routes(g.handlers(), g.writeError, func(w http.ResponseWriter, _ *http.Request) { writeDetail(w, http.StatusNotFound, "Not Found") })
}

// handlers returns what serves each route.
func (g *Gateway) handlers() map[string]dialect.Handler {
	handlers := map[string]dialect.Handler{
		"GET /healthz":                           func(w http.ResponseWriter, _ *http.Request) error { return reply(w, mloc.Object{"ok": true}) },
		"GET /api/v1/results/{id}":               g.getResult,
		"POST /api/v1/results":                   g.postResult,
		"GET /api/v1/results/{id}/files/{name}":  g.getFile,
		"HEAD /api/v1/results/{id}/files/{name}": g.getFile,
		"POST /api/v1/results/{id}/files":        g.postFile,
	}
	for pattern, route := range map[string]struct {
		writes bool
		handle dialect.Handler
	}{
		"POST /api/v1/tasks":         {true, g.postTasks},
		"GET /api/v1/tasks":          {false, g.getTasks},
		"GET /api/v1/tasks/{id}":     {false, g.getTask},
		"GET /workers":               {false, g.getWorkers},
		"GET /workers/{id}":          {false, g.getWorker},
		"POST /workers/{id}/elastic": {true, g.postElastic},
		"GET /metrics":               {false, g.getMetrics},
	} {
		handlers[pattern] = func(w http.ResponseWriter, r *http.Request) error {
			if err := g.authorize(r, route.writes); err != nil {
				return err
			}
			return route.handle(w, r)
		}
	}
	return handlers
}

// reply answers with 200 and a JSON value.
func reply(w http.ResponseWriter, v any) error {
	writeJSON(w, http.StatusOK, v)
	return nil
}

// writeJSON writes JSON as a host does: texts as they are.
func writeJSON(w http.ResponseWriter, status int, v any) {
	b, err := mloc.Encode(v)
	if err != nil {
		status, b = http.StatusInternalServerError, []byte(`{"detail":"a bug of the server"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(b) // the caller may have disconnected
}

func writeDetail(w http.ResponseWriter, status int, reason string) {
	writeJSON(w, status, mloc.Object{"detail": reason})
}

// unprocessable says which field of a body is wrong, in the way of FastAPI.
type unprocessable struct{ field, message, kind string }

func (u *unprocessable) Error() string { return u.field + ": " + u.message }

func (g *Gateway) writeError(w http.ResponseWriter, r *http.Request, err error) {
	if u, ok := errors.AsType[*unprocessable](err); ok {
		writeJSON(w, http.StatusUnprocessableEntity, mloc.Object{"detail": []any{mloc.Object{"type": u.kind, "loc": []any{"body", u.field}, "msg": u.message}}})
		return
	}
	status := dialect.HTTPStatus(w, err)
	if status == http.StatusInternalServerError {
		g.log.Error("MLOC: a request failed", slog.String("method", r.Method), slog.Any("why", err))
	}
	writeDetail(w, status, err.Error())
}

// writeAuthError answers a request whose Muster key is not valid.
func writeAuthError(w http.ResponseWriter, _ *http.Request, err error) {
	if code := muster.CodeOf(err); code == muster.Unauthenticated || code == muster.Forbidden {
		writeDetail(w, http.StatusForbidden, "Invalid token")
		return
	}
	writeDetail(w, http.StatusServiceUnavailable, err.Error())
}

// authorize says whether a client may ask; writes says that it wants to change something.
func (g *Gateway) authorize(r *http.Request, writes bool) error {
	caller := dialect.CallerFromContext(r.Context())
	token := auth.Bearer(r.Header.Get("Authorization"))
	if g.settings.token != "" && subtle.ConstantTimeCompare([]byte(token), []byte(g.settings.token)) == 1 {
		return nil
	}
	if caller.Token == "" {
		switch {
		case !g.requiresToken():
			return nil
		case token == "":
			return muster.Errorf(muster.Unauthenticated, "Missing bearer token")
		}
		whoami, err := g.Deps.Server.Authorize(r.Context(), token) // a key that the operator chose looks like any text
		if muster.CodeOf(err) == muster.Unauthenticated {
			return muster.Errorf(muster.Forbidden, "Invalid token")
		}
		if err != nil {
			return err
		}
		caller.Whoami = whoami
	}
	verb := auth.ReadJobs
	if writes {
		verb = auth.SubmitJobs
	}
	if dialect.Can(caller.Whoami, verb, auth.Object{Project: g.project()}) != nil {
		return muster.Errorf(muster.Forbidden, "Invalid token")
	}
	return nil
}

// postTasks takes a YAML document.
func (g *Gateway) postTasks(w http.ResponseWriter, r *http.Request) error {
	b, err := dialect.ReadBody(r, 2*mloc.MaxYAML)
	if err != nil {
		return err
	}
	if len(b) == 0 {
		return muster.Errorf(muster.Invalid, "Request body is required")
	}
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind == "application/json" {
		if b, err = yamlFromJSON(b); err != nil {
			return err
		}
	}
	if len(strings.TrimSpace(string(b))) == 0 {
		return muster.Errorf(muster.Invalid, "YAML payload cannot be empty")
	}
	tasks, err := g.submit(b)
	if err != nil {
		return err
	}
	list := make([]mloc.Object, len(tasks))
	for i, t := range tasks {
		list[i] = mloc.Object{
			"task_id": t.ID, "status": t.State, "assigned_worker": nil, "topic": nil, "waiting_on": mloc.NonNilList(t.Needs), "depends_on": mloc.NonNilList(t.Needs),
			"attempts": 0, "max_attempts": maxAttempts, "load": t.Load,
		}
	}
	return reply(w, mloc.Object{"ok": true, "count": len(tasks), "tasks": list})
}

// yamlFromJSON returns the document of a JSON body: {"yaml": "…"}, a text, or the document itself.
func yamlFromJSON(b []byte) ([]byte, error) {
	var v any
	if err := mloc.Decode(b, 2*mloc.MaxYAML, &v); err != nil {
		return nil, err
	}
	switch v := v.(type) {
	case string:
		return []byte(v), nil
	case mloc.Object:
		if y, there := v["yaml"]; there {
			s, ok := y.(string)
			if !ok {
				return nil, muster.Errorf(muster.Invalid, "yaml must be a text")
			}
			return []byte(s), nil
		}
	}
	return b, nil
}

func (g *Gateway) getTasks(w http.ResponseWriter, r *http.Request) error {
	dependents := g.tasks.dependents()
	w.Header().Set("Content-Type", "application/json")
	separator := ""
	_, _ = io.WriteString(w, "[")
	for _, t := range g.tasks.list(func(*task) bool { return true }) {
		rec, err := g.toRecord(&t, dependents)
		if err != nil { // it was forgotten meanwhile
			continue
		}
		if _, err := io.WriteString(w, separator+mloc.EncodeString(rec)); err != nil {
			return nil //nolint:nilerr // the caller disconnected
		}
		separator = ","
	}
	_, _ = io.WriteString(w, "]")
	return nil
}

func (g *Gateway) getTask(w http.ResponseWriter, r *http.Request) error {
	t, ok := g.tasks.get(r.PathValue("id"))
	if !ok {
		return muster.Errorf(muster.NotFound, "task not found")
	}
	rec, err := g.toRecord(&t, g.tasks.dependents())
	if err == nil {
		writeJSON(w, http.StatusOK, rec)
	}
	return err
}

// toRecord shows a task as a host does.
func (g *Gateway) toRecord(t *task, dependents map[string][]string) (mloc.Object, error) {
	doc, err := g.tasks.doc(t.ID, false)
	if err != nil {
		return nil, err
	}
	pending := []string{}
	for _, id := range t.Needs {
		if need, known := g.tasks.get(id); !known || need.State != mloc.StateDone {
			pending = append(pending, id)
		}
	}
	rec := mloc.Object{
		"task_id": t.ID, "submission_id": t.Submission, "raw_yaml": g.tasks.yaml(t.Submission), "parsed": doc, "graph_node_name": lenient.NonZero(t.Stage),
		"task_type": t.Type, "category": mloc.Category(t.Type), "load": t.Load,
		"status": t.State, "completed": t.State == mloc.StateDone, "failed": t.State == mloc.StateFailed, "error": lenient.NonZero(t.Error),
		"assigned_worker": lenient.NonZero(t.Worker), "last_failed_worker": lenient.NonZero(t.LastFailed), "topic": nil,
		"attempts": t.Attempts, "max_attempts": maxAttempts, "next_retry_at": nil,
		"submitted_at": mloc.FormatTime(t.Submitted), "submitted_ts": lenient.UnixSeconds(t.Submitted), "last_queue_ts": lenient.UnixSeconds(t.Queued),
		"dispatched_ts": secondsPtr(t.Dispatched), "started_ts": secondsPtr(t.Started), "finished_ts": secondsPtr(t.Finished),
		"depends_on": mloc.NonNilList(t.Needs), "pending_dependencies": pending, "dependents": mloc.NonNilList(dependents[t.ID]),
		"parent_task_id": nil, "shard_index": nil, "shard_total": nil,
		"merged_children": g.children(t.Children), "merged_parent_id": lenient.NonZero(t.Parent), "merge_key": lenient.NonZero(t.MergeKey), "merge_slice": nil,
	}
	if !t.Dispatched.IsZero() {
		rec["topic"] = mloc.DefaultTopic
	}
	return rec, nil
}

func secondsPtr(t time.Time) *float64 {
	if t.IsZero() {
		return nil
	}
	s := lenient.UnixSeconds(t)
	return &s
}

// getWorkers lists the workers that Redis has.
func (g *Gateway) getWorkers(w http.ResponseWriter, r *http.Request) error {
	g.mu.Lock()
	list := []mloc.Object{}
	for _, id := range slices.Sorted(maps.Keys(g.remoteWorkers)) {
		if o := g.workerObject(id); o != nil {
			list = append(list, o)
		}
	}
	g.mu.Unlock()
	return reply(w, list)
}

func (g *Gateway) getWorker(w http.ResponseWriter, r *http.Request) error {
	g.mu.Lock()
	o := g.workerObject(r.PathValue("id"))
	g.mu.Unlock()
	if o == nil {
		return muster.Errorf(muster.NotFound, "worker not found")
	}
	return reply(w, o)
}

// workerObject returns a worker as a host shows it, nil if there is none. g.mu is held.
func (g *Gateway) workerObject(id string) mloc.Object {
	p := g.remoteWorkers[id]
	if p == nil || p.last.raw == nil || p.last.err != nil {
		return nil
	}
	h := p.last.hash
	return mloc.Object{
		"worker_id": id, "status": h.Status, "started_at": h.StartedAt, "pid": h.PID, "env": mloc.NonNilObject(h.Env), "hardware": h.Hardware, "tags": mloc.NonNilList(h.Tags),
		"last_seen": h.LastSeen, "cached_models": mloc.NonNilList(h.CacheModels), "cached_datasets": mloc.NonNilList(h.CacheDatasets), "cache_updated_ts": lenient.NonZero(h.CacheUpdated),
		"cost_per_hour": h.CostPerHour, "stale": !p.last.alive, "elastic_disabled": g.disabled[id],
	}
}

func (g *Gateway) postElastic(w http.ResponseWriter, r *http.Request) error {
	b, err := dialect.ReadBody(r, 64<<10)
	if err != nil {
		return err
	}
	var in mloc.Object
	if err := mloc.Decode(b, 64<<10, &in); err != nil {
		return &unprocessable{"enabled", "JSON decode error", "json_invalid"}
	}
	enabled, ok := in["enabled"].(bool)
	if !ok {
		return &unprocessable{"enabled", "Input should be a valid boolean", cmp.Or(map[bool]string{true: "missing"}[in["enabled"] == nil], "bool_type")}
	}
	if g.settings.elastic == "false" {
		return muster.Errorf(muster.Invalid, "Elastic scaling is disabled")
	}
	id := r.PathValue("id")
	if err := g.setElastic(r.Context(), id, enabled); err != nil {
		return err
	}
	return reply(w, mloc.Object{"worker_id": id, "enabled": enabled, "elastic_disabled": !enabled})
}

func (g *Gateway) getMetrics(w http.ResponseWriter, r *http.Request) error {
	g.mu.Lock()
	active := 0
	for _, p := range g.remoteWorkers {
		if p.last.alive && p.last.err == nil {
			active++
		}
	}
	disabled := slices.Sorted(maps.Keys(g.disabled))
	g.mu.Unlock()
	return reply(w, g.metrics.snapshot(time.Now(), active, disabled))
}

// hasGrant reports whether a request may read the results of a task by the task's own grant.
func (g *Gateway) hasGrant(r *http.Request, id string) bool {
	grant := r.URL.Query().Get("grant")
	return grant != "" && hmac.Equal([]byte(grant), []byte(g.grantToken(id)))
}

func (g *Gateway) getResult(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("id")
	if err := g.authorize(r, false); err != nil && !g.hasGrant(r, id) {
		return err
	}
	o, err := g.results.get(id)
	if err == nil {
		writeJSON(w, http.StatusOK, o)
	}
	return err
}

func missingField(field string) error { return &unprocessable{field, "Field required", "missing"} }

func readDelivery(b []byte) (mloc.Delivery, error) {
	var in struct {
		TaskID     *string     `json:"task_id"`
		WorkerID   string      `json:"worker_id"`
		ReceivedAt string      `json:"received_at"`
		Result     mloc.Object `json:"result"`
		Metadata   mloc.Object `json:"metadata"`
	}
	err := mloc.Decode(b, mloc.MaxResult+64<<10, &in)
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		switch wrong.Field {
		case "":
			return mloc.Delivery{}, &unprocessable{"body", "Input should be a valid dictionary", "model_attributes_type"}
		case "result", "metadata":
			return mloc.Delivery{}, &unprocessable{wrong.Field, "Input should be a valid dictionary", "dict_type"}
		default:
			return mloc.Delivery{}, &unprocessable{wrong.Field, "Input should be a valid string", "string_type"}
		}
	}
	switch {
	case err != nil:
		return mloc.Delivery{}, muster.Errorf(muster.Invalid, "the body is not a JSON object: %w", err)
	case in.TaskID == nil:
		return mloc.Delivery{}, missingField("task_id")
	case *in.TaskID == "":
		return mloc.Delivery{}, &unprocessable{"task_id", "String should have at least 1 character", "string_too_short"}
	case !mloc.ValidID(*in.TaskID), len(in.WorkerID) > mloc.MaxID, len(in.ReceivedAt) > mloc.MaxID:
		return mloc.Delivery{}, muster.Errorf(muster.Invalid, "an id or a time has more than %d bytes, or signs that none has", mloc.MaxID)
	case in.Result == nil:
		return mloc.Delivery{}, missingField("result")
	}
	if len(b) > mloc.MaxResult {
		if result, err := mloc.Encode(in.Result); err != nil || len(result) > mloc.MaxResult {
			return mloc.Delivery{}, muster.Errorf(muster.TooLarge, "the result has more than %d bytes: send what is large as files", mloc.MaxResult)
		}
	}
	return mloc.Delivery{TaskID: *in.TaskID, WorkerID: in.WorkerID, Result: in.Result, Metadata: in.Metadata}, nil
}
