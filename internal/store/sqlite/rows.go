package sqlite

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/store"
)

// The columns of each table, in the order of the row functions below.
const (
	countColumns = "n_waiting, n_queued, n_assigned, n_running, n_cancelling, n_succeeded, n_failed, n_timed_out, n_cancelled, n_skipped"
	jobFixed     = "id, name, project, kind, created_at, owner, uid"
	jobColumns   = jobFixed + ", state, priority, labels, " + countColumns +
		", progress, started_at, finished_at, retried_at, cost, energy_wh, cpu_seconds, gpu_seconds, wall_seconds, memory_peak, attempts, held, log_bytes, unsized"
	retentionColumns = "kept_at, logs_removed_at, artifacts_removed_at"
	jobRead          = jobColumns + ", " + retentionColumns // what readers get; only writeRetention changes the last ones
	totalColumns     = "project, " + countColumns
	groupColumns     = "job, idx, name, first, size, next, rest, rest_at, reason, message, " + countColumns + ", kept, started_at, finished_at"
	taskColumns      = taskFixed + ", " + taskMutable + ", finished_at"
	taskFixed        = "id, grp, name, kind, element, created_at, origin"
	taskMutable      = "state, attempt, retried, crashes, worker, queued_at, not_before, assigned_at, started_at, reason, message, " +
		"exit_code, log_size, grant, checkpoint, progress, step, metrics, usage, artifacts, result, image, cache"
	attemptColumns = "task, n, worker, outcome, reason, message, exit_code, log_size, assigned_at, started_at, finished_at, usage, artifacts, image"
	workerColumns  = "id, name, state, version, tags, labels, kinds, price, resources, address, paused, draining, deadline, joined_at, last_seen_at, allow, own_kinds, lacks, projects, pending, token, quarantined, heartbeat"
	keyColumns     = "id, name, hash, role, project, worker, created_at, expires_at, job, parent, prefix, rotated, last_used_at, last_used_from, subject, uses, bounds, approval, joined_by, quarantined"
)

// upsert returns the statement that inserts a row or replaces all but its key, which is the first nkeys columns.
func upsert(table string, nkeys int, list string) string {
	return upsertAfter(table, nkeys, nkeys, list)
}

// upsertAfter is upsert for rows whose first nfixed columns never change, so that indexes on them are written once.
func upsertAfter(table string, nkeys, nfixed int, list string) string {
	names := strings.Split(list, ", ")
	var set []string
	for _, n := range names[nfixed:] {
		set = append(set, n+" = excluded."+n)
	}
	return "INSERT INTO " + table + " (" + list + ") VALUES (?" + strings.Repeat(", ?", len(names)-1) + ")" +
		" ON CONFLICT (" + strings.Join(names[:nkeys], ", ") + ") DO UPDATE SET " + strings.Join(set, ", ")
}

// update returns the statement that sets the columns of list in the row whose id is the last parameter.
func update(table, list string) string {
	return "UPDATE " + table + " SET " + strings.ReplaceAll(list, ", ", " = ?, ") + " = ? WHERE id = ?"
}

var (
	putJob     = upsertAfter("job", 1, strings.Count(jobFixed, ",")+1, jobColumns)
	putGroup   = upsert("task_group", 2, groupColumns)
	putTask    = upsert("task", 1, taskColumns)
	updateTask = update("task", taskMutable)
	finishTask = update("task", taskMutable+", finished_at")
	putAttempt = upsert("attempt", 2, attemptColumns)
	putWorker  = upsert("worker", 1, workerColumns)
	putKey     = strings.Replace(upsert("api_key", 1, keyColumns), "excluded.quarantined", "ifnull(excluded.quarantined, quarantined)", 1)
	putTotal   = upsert("project_total", 1, totalColumns)
)

// taskBits is the number of bits for a task's number in its packed id.
const taskBits = 24

func packTask(id muster.TaskID) int64 { return int64(id.Job)<<taskBits | int64(id.Num) }

func unpackTask(n int64) muster.TaskID {
	return muster.TaskID{Job: muster.JobID(n >> taskBits), Num: int(n & (1<<taskBits - 1))}
}

func jobStateNumber(s muster.JobState) int64 { return int64(slices.Index(muster.JobStates, s) + 1) }

// outcomes are stored as their positions, from 1: append only.
var outcomes = []muster.Outcome{
	muster.AttemptSucceeded, muster.AttemptFailed, muster.AttemptTimedOut,
	muster.AttemptCancelled, muster.AttemptRejected, muster.AttemptLost,
}

// row lists the fields of a struct in the order of the table's columns. It either binds them as parameters or
// sets them from a result, so that both directions have one list.
type row struct {
	p *params  // nil when reading
	c *columns // nil when binding
}

// field binds *v as a parameter, or sets it from a column.
func field[T any](r row, v *T, bind func(*params, T), scan func(*columns) T) {
	if r.p != nil {
		bind(r.p, *v)
	} else {
		*v = scan(r.c)
	}
}

func number[T ~int | ~int64 | ~uint8](r row, v *T) {
	field(r, v, func(p *params, v T) { p.int(int64(v)) }, func(c *columns) T { return T(c.int()) })
}

// optNumber is number for a field whose zero means unknown: it is stored as NULL.
func optNumber[T ~int | ~int64](r row, v *T) {
	field(r, v, func(p *params, v T) { p.nullInt(int64(v)) }, func(c *columns) T { return T(c.int()) })
}

func text[T ~string](r row, v *T) {
	field(r, v, func(p *params, v T) { p.text(string(v)) }, func(c *columns) T { return T(c.text()) })
}

// optText is text for a field that is stored as NULL if it is empty.
func optText[T ~string](r row, v *T) {
	field(r, v, func(p *params, v T) { p.nullText(string(v)) }, func(c *columns) T { return T(c.text()) })
}

// index stores an element of list as its position, from 1. Anything else is stored as 0, and read as "".
func index[T ~string](r row, v *T, list []T) {
	n := slices.Index(list, *v) + 1
	number(r, &n)
	if r.c != nil {
		*v = ""
		if n >= 1 && n <= len(list) {
			*v = list[n-1]
		}
	}
}

func jsonList[E any](r row, v *[]E) { jsonField(r, v, len(*v) == 0) }

func jsonMap[V any](r row, v *map[string]V) { jsonField(r, v, len(*v) == 0) }

func jsonField[T any](r row, v *T, absent bool) {
	if r.p != nil {
		r.p.json(v, absent)
	} else {
		r.c.json(v)
	}
}

func jsonPtr[T any](r row, v **T) {
	optional(r, v, func(r row, v *T) { jsonField(r, v, false) })
}

// optional is a field whose nil is stored as NULL.
func optional[T any](r row, v **T, value func(row, *T)) {
	switch {
	case r.p != nil && *v == nil:
		r.p.n++
	case r.p != nil:
		value(r, *v)
	case !r.c.null():
		*v = new(T)
		value(r, *v)
	}
}

func (r row) raw(v *json.RawMessage) {
	field(r, v, func(p *params, v json.RawMessage) { p.raw(v) }, func(c *columns) json.RawMessage { return c.raw() })
}

func (r row) grant(v *muster.Grant) {
	if r.p != nil {
		r.p.grant(v)
	} else {
		r.c.json(v)
	}
}

func (r row) bool(v *bool)     { field(r, v, (*params).bool, (*columns).bool) }
func (r row) float(v *float64) { field(r, v, (*params).float, (*columns).float) }
func (r row) taskID(v *muster.TaskID) {
	field(r, v, func(p *params, v muster.TaskID) { p.int(packTask(v)) }, func(c *columns) muster.TaskID { return unpackTask(c.int()) })
}

// origin is a task's id that is stored as NULL if it is zero.
func (r row) origin(v *muster.TaskID) {
	field(r, v, func(p *params, v muster.TaskID) { p.nullInt(packTask(v)) }, func(c *columns) muster.TaskID { return unpackTask(c.int()) })
}

func (r row) counts(v *muster.Counts) {
	for _, s := range muster.TaskStates {
		number(r, &v[s])
	}
}

func (r row) job(j *muster.Job) {
	number(r, &j.ID)
	text(r, &j.Name)
	text(r, &j.Project)
	optText(r, &j.Kind)
	optNumber(r, &j.CreatedAt)
	optText(r, &j.Owner)
	optText(r, &j.UID)
	index(r, &j.State, muster.JobStates)
	number(r, &j.Priority)
	jsonMap(r, &j.Labels)
	r.counts(&j.Counts)
	optional(r, &j.Progress, row.float)
	optNumber(r, &j.StartedAt)
	optNumber(r, &j.FinishedAt)
	optNumber(r, &j.RetriedAt)
	r.float(&j.Cost)
	r.float(&j.Usage.EnergyWh)
	r.float(&j.Usage.CPUSeconds)
	r.float(&j.Usage.GPUSeconds)
	r.float(&j.Usage.WallSeconds)
	number(r, &j.Usage.MemoryPeak)
	number(r, &j.Usage.Attempts)
	r.bool(&j.Held)
	number(r, &j.Usage.LogBytes)
	number(r, &j.Unsized)
}

// jobRead reads the columns of jobRead.
func (r row) jobRead(j *muster.Job) {
	r.job(j)
	r.jobRetention(&j.JobRetention)
}

// jobWithSpec reads the columns of a job, and its spec after them.
func (r row) jobWithSpec(j *muster.Job) {
	r.job(j)
	jsonPtr(r, &j.Spec)
}

func (r row) group(g *muster.Group) {
	number(r, &g.Job)
	number(r, &g.Index)
	text(r, &g.Name)
	number(r, &g.First)
	number(r, &g.Size)
	number(r, &g.Materialized)
	number(r, &g.UnmaterializedState)
	optNumber(r, &g.UnmaterializedSince)
	optText(r, &g.Reason)
	optText(r, &g.Message)
	r.counts(&g.Counts)
	r.bool(&g.Retained)
	optNumber(r, &g.StartedAt)
	optNumber(r, &g.FinishedAt)
}

func (r row) idempotencyKey(k *store.IdempotencyKey) {
	text(r, &k.Key)
	text(r, &k.Owner)
	text(r, &k.Digest)
	number(r, &k.Job)
	number(r, &k.At)
}

// groupWithSpec reads the columns of a group, and its resolved spec after them.
func (r row) groupWithSpec(g *muster.Group) {
	r.group(g)
	jsonPtr(r, &g.Resolved)
}

func (r row) task(t *muster.Task) {
	r.taskID(&t.ID)
	if r.c != nil {
		t.Job, t.Index = t.ID.Job, t.ID.Num
	}
	number(r, &t.Group)
	text(r, &t.Name)
	text(r, &t.Kind)
	optText(r, &t.Element)
	optNumber(r, &t.CreatedAt)
	origin := t.Origin
	if t.Cached {
		origin = muster.TaskID{} // see taskCache
	}
	if r.origin(&origin); r.c != nil {
		t.Origin = origin
	}
	r.taskMutable(t)
	optNumber(r, &t.FinishedAt)
}

// taskMutable lists the fields that change while a task exists, without FinishedAt.
func (r row) taskMutable(t *muster.Task) {
	number(r, &t.State)
	number(r, &t.Attempt)
	number(r, &t.Retries)
	number(r, &t.Crashes)
	optText(r, &t.Worker)
	optNumber(r, &t.QueuedAt)
	optNumber(r, &t.NotBefore)
	optNumber(r, &t.AssignedAt)
	optNumber(r, &t.StartedAt)
	optText(r, &t.Reason)
	optText(r, &t.Message)
	optional(r, &t.ExitCode, number[int])
	optNumber(r, &t.LogSize)
	optional(r, &t.Grant, row.grant)
	optText(r, &t.Checkpoint)
	optional(r, &t.Progress, row.float)
	optText(r, &t.Step)
	jsonMap(r, &t.Metrics)
	jsonPtr(r, &t.Usage)
	jsonList(r, &t.Artifacts)
	r.raw(&t.Result)
	optText(r, &t.Image)
	r.taskCache(t)
}

func (r row) attempt(a *muster.Attempt) {
	r.taskID(&a.ID.Task)
	number(r, &a.ID.N)
	optText(r, &a.Worker)
	index(r, &a.Outcome, outcomes)
	optText(r, &a.Reason)
	optText(r, &a.Message)
	optional(r, &a.ExitCode, number[int])
	optNumber(r, &a.LogSize)
	optNumber(r, &a.AssignedAt)
	optNumber(r, &a.StartedAt)
	optNumber(r, &a.FinishedAt)
	jsonPtr(r, &a.Usage)
	jsonList(r, &a.Artifacts)
	optText(r, &a.Image)
}

func (r row) worker(w *muster.Worker) {
	text(r, &w.ID)
	text(r, &w.Name)
	text(r, &w.State)
	optText(r, &w.Version)
	jsonList(r, &w.Tags)
	jsonMap(r, &w.Labels)
	jsonList(r, &w.Kinds)
	r.float(&w.Price)
	jsonField(r, &w.Resources, false)
	optText(r, &w.Address)
	r.bool(&w.Paused)
	r.bool(&w.Draining)
	optNumber(r, &w.Deadline)
	optNumber(r, &w.JoinedAt)
	optNumber(r, &w.LastSeenAt)
	jsonPtr(r, &w.Allow)
	r.raw(&w.CustomKinds)
	jsonList(r, &w.UnsupportedFeatures)
	jsonList(r, &w.Projects)
	r.bool(&w.Pending)
	optText(r, &w.Token)
	optText(r, &w.Quarantined)
	optNumber(r, &w.Heartbeat)
}
