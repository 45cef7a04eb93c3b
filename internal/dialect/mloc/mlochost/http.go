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
	"github.com/muster-dev/muster/internal/dialect"
	"github.com/muster-dev/muster/internal/dialect/lenient"
	"github.com/muster-dev/muster/internal/dialect/mloc"
)

// handler serves the HTTP API of a host.
func (g *Gateway) handler() http.Handler {
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
	return dialect.Routes(handlers, g.writeError, func(w http.ResponseWriter, _ *http.Request) { writeDetail(w, http.StatusNotFound, "Not Found") })
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

// writeError answers a request that failed.
func (g *Gateway) writeError(w http.ResponseWriter, r *http.Request, err error) {
	if u, ok := errors.AsType[*unprocessable](err); ok {
		writeJSON(w, http.StatusUnprocessableEntity, mloc.Object{"detail": []any{mloc.Object{"type": u.kind, "loc": []any{"body", u.field}, "msg": u.message}}})
		return
	}
	status := dialect.HTTPStatus(err)
	if status == http.StatusInternalServerError {
		g.log.Error("MLOC: a request failed", slog.String("method", r.Method), slog.Any("why", err))
	}
	writeDetail(w, status, err.Error())
}

// writeAuthError answers a request whose Muster key is not valid.
func writeAuthError(w http.ResponseWriter, _ *http.Request, err error) {
	if muster.CodeOf(err) == muster.Unauthenticated {
		writeDetail(w, http.StatusForbidden, "Invalid token")
		return
	}
	writeDetail(w, http.StatusServiceUnavailable, err.Error())
}

// bearer returns the token of a request, "" if there is none.
func bearer(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// authorize says whether a client may ask; writes says that it wants to change something.
func (g *Gateway) authorize(r *http.Request, writes bool) error {
	caller := dialect.CallerFromContext(r.Context())
	token := bearer(r)
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
	switch {
	case caller.Project != "" && caller.Project != g.project():
		return muster.Errorf(muster.Forbidden, "Invalid token")
	case caller.Role == "admin", caller.Role == "submitter", caller.Role == "viewer" && !writes:
		return nil
	default:
		return muster.Errorf(muster.Forbidden, "Invalid token")
	}
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

// getTasks lists all tasks.
func (g *Gateway) getTasks(w http.ResponseWriter, r *http.Request) error {
	dependents := g.tasks.dependents()
	w.Header().Set("Content-Type", "application/json")
	separator := "["
	for _, t := range g.tasks.list(func(*task) bool { return true }) {
		rec, err := g.toRecord(&t, dependents)
		if err != nil { // it was forgotten meanwhile
			continue
		}
		b, err := mloc.Encode(rec)
		if err != nil {
			continue
		}
		if _, err := io.WriteString(w, separator+string(b)); err != nil {
			return nil //nolint:nilerr // the caller disconnected
		}
		separator = ","
	}
	if separator == "[" {
		_, _ = io.WriteString(w, "[")
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
func (g *Gateway) toRecord(t *task, dependents map[string][]string) (mloc.Record, error) {
	doc, err := g.tasks.doc(t.ID, false)
	if err != nil {
		return mloc.Record{}, err
	}
	rec := mloc.Record{
		TaskID: t.ID, RawYAML: g.tasks.yaml(t.Submission), Parsed: doc, Status: t.State, SubmissionID: t.Submission, TaskType: t.Type, Category: mloc.Category(t.Type),
		AssignedWorker: lenient.NonZero(t.Worker), SubmittedAt: mloc.FormatTime(t.Submitted), SubmittedTS: lenient.Epoch(t.Submitted), LastQueueTS: lenient.Epoch(t.Queued),
		DispatchedTS: secondsPtr(t.Dispatched), StartedTS: secondsPtr(t.Started), FinishedTS: secondsPtr(t.Finished), Error: lenient.NonZero(t.Error),
		Attempts: t.Attempts, MaxAttempts: maxAttempts, LastFailed: lenient.NonZero(t.LastFailed), NodeName: lenient.NonZero(t.Stage), Load: t.Load, MergedParent: lenient.NonZero(t.Parent),
		MergeKey: lenient.NonZero(t.MergeKey), DependsOn: mloc.NonNilList(t.Needs), Pending: []string{}, Dependents: mloc.NonNilList(dependents[t.ID]), MergedChildren: []mloc.Child{},
		Completed: t.State == mloc.StateDone, Failed: t.State == mloc.StateFailed,
	}
	if !t.Dispatched.IsZero() {
		rec.Topic = lenient.NonZero(mloc.DefaultTopic)
	}
	for _, id := range t.Needs {
		if need, known := g.tasks.get(id); !known || need.State != mloc.StateDone {
			rec.Pending = append(rec.Pending, id)
		}
	}
	for _, id := range t.Children {
		if doc, err := g.tasks.doc(id, true); err == nil {
			rec.MergedChildren = append(rec.MergedChildren, mloc.Child{TaskID: id, Spec: doc.Spec, Metadata: doc.Metadata})
		}
	}
	return rec, nil
}

func secondsPtr(t time.Time) *float64 {
	if t.IsZero() {
		return nil
	}
	s := lenient.Epoch(t)
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

// postElastic enables or disables a worker.
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
	known, err := g.setElastic(r.Context(), id, enabled)
	if err != nil {
		return err
	}
	if !known {
		return muster.Errorf(muster.NotFound, "worker not found")
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

// missingField says that a field of a body is not there.
func missingField(field string) error { return &unprocessable{field, "Field required", "missing"} }

// readDelivery reads the body of a result.
func readDelivery(b []byte) (mloc.Delivery, error) {
	var d mloc.Delivery
	var fields map[string]json.RawMessage
	if err := mloc.Decode(b, mloc.MaxResult+64<<10, &fields); err != nil {
		if len(b) > 0 && mloc.IsTypeError(err) {
			return d, &unprocessable{"body", "Input should be a valid dictionary", "model_attributes_type"}
		}
		return d, muster.Errorf(muster.Invalid, "the body is not a JSON object: %w", err)
	}
	for name, dst := range map[string]*string{"task_id": &d.TaskID, "worker_id": &d.WorkerID, "received_at": &d.ReceivedAt} {
		raw := fields[name]
		if len(raw) == 0 || string(raw) == "null" && name != "task_id" {
			continue
		}
		if json.Unmarshal(raw, dst) != nil {
			return d, &unprocessable{name, "Input should be a valid string", "string_type"}
		}
	}
	switch result := fields["result"]; {
	case len(fields["task_id"]) == 0:
		return d, missingField("task_id")
	case d.TaskID == "":
		return d, &unprocessable{"task_id", "String should have at least 1 character", "string_too_short"}
	case !mloc.ValidID(d.TaskID), len(d.WorkerID) > mloc.MaxID, len(d.ReceivedAt) > mloc.MaxID:
		return d, muster.Errorf(muster.Invalid, "an id or a time has more than %d bytes, or signs that none has", mloc.MaxID)
	case len(result) == 0:
		return d, missingField("result")
	case result[0] != '{':
		return d, &unprocessable{"result", "Input should be a valid dictionary", "dict_type"}
	default:
		d.Result = result
	}
	if m := fields["metadata"]; len(m) > 0 && string(m) != "null" {
		if m[0] != '{' {
			return d, &unprocessable{"metadata", "Input should be a valid dictionary", "dict_type"}
		}
		d.Metadata = m
	}
	return d, nil
}
