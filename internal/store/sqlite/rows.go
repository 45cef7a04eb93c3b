package sqlite

import (
	"slices"
	"strings"

	"github.com/muster-dev/muster"
)

// The columns of each table, in the order in which rows are bound and read. The
// first nkeys of a list are the primary key, and of jobs what never changes.
const (
	countColumns = "n_waiting, n_queued, n_assigned, n_running, n_cancelling, n_succeeded, n_failed, n_timed_out, n_cancelled, n_skipped"
	jobFixed     = "id, name, project, kind, created_at, owner, uid"
	jobColumns   = jobFixed + ", state, priority, labels, " + countColumns +
		", progress, started_at, finished_at, retried_at, cost, energy_wh, cpu_seconds, gpu_seconds, wall_seconds, memory_peak, attempts"
	groupColumns = "job, idx, name, first, size, next, rest, rest_at, reason, message, " + countColumns + ", kept, started_at, finished_at"
	taskColumns  = taskFixed + ", " + taskMutable + ", finished_at"
	taskFixed    = "id, grp, name, kind, element, created_at"
	taskMutable  = "state, attempt, retried, crashes, worker, queued_at, not_before, assigned_at, started_at, reason, message, " +
		"exit_code, log_size, grant, checkpoint, progress, step, metrics, usage, artifacts, result, image"
	attemptColumns = "task, n, worker, outcome, reason, message, exit_code, log_size, assigned_at, started_at, finished_at, usage, artifacts, image"
	workerColumns  = "id, name, state, version, tags, labels, kinds, price, resources, address, paused, draining, deadline, joined_at, last_seen_at, allow, own_kinds, lacks, projects"
	keyColumns     = "id, name, hash, role, project, worker, created_at, expires_at, job, parent"
)

// upsert makes the statement that inserts a row or replaces all but its key.
func upsert(table string, nkeys int, list string) string {
	return upsertAfter(table, nkeys, nkeys, list)
}

// upsertAfter does the same, and keeps the columns up to the nfixed-th, so that the indexes on these are written once.
func upsertAfter(table string, nkeys, nfixed int, list string) string {
	names := strings.Split(list, ", ")
	var set []string
	for _, n := range names[nfixed:] {
		set = append(set, n+" = excluded."+n)
	}
	return "INSERT INTO " + table + " (" + list + ") VALUES (?" + strings.Repeat(", ?", len(names)-1) + ")" +
		" ON CONFLICT (" + strings.Join(names[:nkeys], ", ") + ") DO UPDATE SET " + strings.Join(set, ", ")
}

// update makes the statement that sets the columns of list in the row with an id,
// which is the last parameter.
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
	putKey     = upsert("api_key", 1, keyColumns)
)

// taskBits is the room for a task's number in its packed id.
const taskBits = 24

func packTask(id muster.TaskID) int64 { return int64(id.Job)<<taskBits | int64(id.Num) }

func unpackTask(n int64) muster.TaskID {
	return muster.TaskID{Job: muster.JobID(n >> taskBits), Num: int(n & (1<<taskBits - 1))}
}

func jobStateNumber(s muster.JobState) int64 { return int64(slices.Index(muster.JobStates, s) + 1) }

func jobStateOf(n int64) muster.JobState {
	if n < 1 || n > int64(len(muster.JobStates)) {
		return ""
	}
	return muster.JobStates[n-1]
}

// outcomes is the order in which outcomes are numbered, from 1. It only grows.
var outcomes = []muster.Outcome{
	muster.AttemptSucceeded, muster.AttemptFailed, muster.AttemptTimedOut,
	muster.AttemptCancelled, muster.AttemptRejected, muster.AttemptLost,
}

func (p *params) job(j *muster.Job) {
	p.int(int64(j.ID))
	p.text(j.Name)
	p.text(j.Project)
	p.nullText(j.Kind)
	p.time(j.CreatedAt)
	p.nullText(j.Owner)
	p.nullText(j.UID)
	p.int(jobStateNumber(j.State))
	p.int(int64(j.Priority))
	p.json(j.Labels, len(j.Labels) == 0)
	p.counts(&j.Counts)
	p.floatPtr(j.Progress)
	p.time(j.StartedAt)
	p.time(j.FinishedAt)
	p.time(j.RetriedAt)
	p.float(j.Cost)
	p.float(j.Usage.EnergyWh)
	p.float(j.Usage.CPUSeconds)
	p.float(j.Usage.GPUSeconds)
	p.float(j.Usage.WallSeconds)
	p.int(int64(j.Usage.MemoryPeak))
	p.int(j.Usage.Attempts)
}

func (c *columns) job() (j muster.Job) {
	j.ID = muster.JobID(c.int())
	j.Name = c.text()
	j.Project = c.text()
	j.Kind = c.text()
	j.CreatedAt = c.time()
	j.Owner = c.text()
	j.UID = c.text()
	j.State = jobStateOf(c.int())
	j.Priority = int(c.int())
	c.json(&j.Labels)
	j.Counts = c.counts()
	j.Progress = c.floatPtr()
	j.StartedAt = c.time()
	j.FinishedAt = c.time()
	j.RetriedAt = c.time()
	j.Cost = c.float()
	j.Usage = muster.JobUsage{
		EnergyWh: c.float(), CPUSeconds: c.float(), GPUSeconds: c.float(), WallSeconds: c.float(), MemoryPeak: muster.Size(c.int()), Attempts: c.int(),
	}
	return j
}

func (p *params) group(g *muster.Group) {
	p.int(int64(g.Job))
	p.int(int64(g.Index))
	p.text(g.Name)
	p.int(int64(g.First))
	p.int(int64(g.Size))
	p.int(int64(g.Materialized))
	p.int(int64(g.UnmaterializedState))
	p.time(g.UnmaterializedSince)
	p.nullText(string(g.Reason))
	p.nullText(g.Message)
	p.counts(&g.Counts)
	p.bool(g.Retained)
	p.time(g.StartedAt)
	p.time(g.FinishedAt)
}

// group reads the group's columns, and after them its resolved spec.
func (c *columns) group() (g muster.Group) {
	g.Job = muster.JobID(c.int())
	g.Index = int(c.int())
	g.Name = c.text()
	g.First = int(c.int())
	g.Size = int(c.int())
	g.Materialized = int(c.int())
	g.UnmaterializedState = muster.TaskState(c.int())
	g.UnmaterializedSince = c.time()
	g.Reason = muster.Reason(c.text())
	g.Message = c.text()
	g.Counts = c.counts()
	g.Retained = c.bool()
	g.StartedAt = c.time()
	g.FinishedAt = c.time()
	g.Resolved = optionalJSON[muster.TaskSpec](c)
	return g
}

func (p *params) task(t *muster.Task) {
	p.int(packTask(t.ID))
	p.int(int64(t.Group))
	p.text(t.Name)
	p.text(t.Kind)
	p.nullText(t.Element)
	p.time(t.CreatedAt)
	p.mutableColumns(t)
	p.time(t.FinishedAt)
}

// mutableColumns binds what changes in the life of a task.
func (p *params) mutableColumns(t *muster.Task) {
	p.int(int64(t.State))
	p.int(int64(t.Attempt))
	p.int(int64(t.Retried))
	p.int(int64(t.Crashes))
	p.nullText(string(t.Worker))
	p.time(t.QueuedAt)
	p.time(t.NotBefore)
	p.time(t.AssignedAt)
	p.time(t.StartedAt)
	p.nullText(string(t.Reason))
	p.nullText(t.Message)
	p.intPtr(t.ExitCode)
	p.nullInt(t.LogSize)
	p.json(t.Grant, t.Grant == nil)
	p.nullText(t.Checkpoint)
	p.floatPtr(t.Progress)
	p.nullText(t.Step)
	p.json(t.Metrics, len(t.Metrics) == 0)
	p.json(t.Usage, t.Usage == nil)
	p.json(t.Artifacts, len(t.Artifacts) == 0)
	p.raw(t.Result)
	p.nullText(t.Image)
}

func (c *columns) task() (t muster.Task) {
	t.ID = unpackTask(c.int())
	t.Job = t.ID.Job
	t.Index = t.ID.Num
	t.Group = int(c.int())
	t.Name = c.text()
	t.Kind = c.text()
	t.Element = c.text()
	t.CreatedAt = c.time()
	t.State = muster.TaskState(c.int())
	t.Attempt = int(c.int())
	t.Retried = int(c.int())
	t.Crashes = int(c.int())
	t.Worker = muster.WorkerID(c.text())
	t.QueuedAt = c.time()
	t.NotBefore = c.time()
	t.AssignedAt = c.time()
	t.StartedAt = c.time()
	t.Reason = muster.Reason(c.text())
	t.Message = c.text()
	t.ExitCode = c.intPtr()
	t.LogSize = c.int()
	t.Grant = optionalJSON[muster.Grant](c)
	t.Checkpoint = c.text()
	t.Progress = c.floatPtr()
	t.Step = c.text()
	c.json(&t.Metrics)
	t.Usage = optionalJSON[muster.Usage](c)
	c.json(&t.Artifacts)
	t.Result = c.raw()
	t.Image = c.text()
	t.FinishedAt = c.time()
	return t
}

func (p *params) attempt(a *muster.Attempt) {
	p.int(packTask(a.ID.Task))
	p.int(int64(a.ID.N))
	p.nullText(string(a.Worker))
	p.int(int64(slices.Index(outcomes, a.Outcome) + 1))
	p.nullText(string(a.Reason))
	p.nullText(a.Message)
	p.intPtr(a.ExitCode)
	p.nullInt(a.LogSize)
	p.time(a.AssignedAt)
	p.time(a.StartedAt)
	p.time(a.FinishedAt)
	p.json(a.Usage, a.Usage == nil)
	p.json(a.Artifacts, len(a.Artifacts) == 0)
	p.nullText(a.Image)
}

func (c *columns) attempt() (a muster.Attempt) {
	a.ID.Task = unpackTask(c.int())
	a.ID.N = int(c.int())
	a.Worker = muster.WorkerID(c.text())
	if n := c.int(); n >= 1 && n <= int64(len(outcomes)) {
		a.Outcome = outcomes[n-1]
	}
	a.Reason = muster.Reason(c.text())
	a.Message = c.text()
	a.ExitCode = c.intPtr()
	a.LogSize = c.int()
	a.AssignedAt = c.time()
	a.StartedAt = c.time()
	a.FinishedAt = c.time()
	a.Usage = optionalJSON[muster.Usage](c)
	c.json(&a.Artifacts)
	a.Image = c.text()
	return a
}

func (p *params) worker(w *muster.Worker) {
	p.text(string(w.ID))
	p.text(w.Name)
	p.text(string(w.State))
	p.nullText(w.Version)
	p.json(w.Tags, len(w.Tags) == 0)
	p.json(w.Labels, len(w.Labels) == 0)
	p.json(w.Kinds, len(w.Kinds) == 0)
	p.float(w.Price)
	p.json(&w.Resources, false)
	p.nullText(w.Address)
	p.bool(w.Paused)
	p.bool(w.Draining)
	p.time(w.Deadline)
	p.time(w.JoinedAt)
	p.time(w.LastSeenAt)
	p.json(w.Allow, w.Allow == nil)
	p.raw(w.CustomKinds)
	p.json(w.UnsupportedFeatures, len(w.UnsupportedFeatures) == 0)
	p.json(w.Projects, len(w.Projects) == 0)
}

func (c *columns) worker() (w muster.Worker) {
	w.ID = muster.WorkerID(c.text())
	w.Name = c.text()
	w.State = muster.WorkerState(c.text())
	w.Version = c.text()
	c.json(&w.Tags)
	c.json(&w.Labels)
	c.json(&w.Kinds)
	w.Price = c.float()
	c.json(&w.Resources)
	w.Address = c.text()
	w.Paused = c.bool()
	w.Draining = c.bool()
	w.Deadline = c.time()
	w.JoinedAt = c.time()
	w.LastSeenAt = c.time()
	w.Allow = optionalJSON[muster.Allow](c)
	w.CustomKinds = c.raw()
	c.json(&w.UnsupportedFeatures)
	c.json(&w.Projects)
	return w
}
