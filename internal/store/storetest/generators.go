package storetest

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/store"
	"pgregory.net/rapid"
)

// generators draws every stored field, with difficult values: odd texts, absent and zero numbers, floats that are not decimals.
func generators() rapid.MakeConfig {
	absent := rapid.Just[any](nil)
	raw := rapid.SampledFrom([]json.RawMessage{
		nil, json.RawMessage(`[]`), json.RawMessage(`[{"name": "resize", "about": "é\u0000\"<", "entry": ["./resize"]}]`),
		json.RawMessage(strings.Repeat("[", 5_000) + strings.Repeat("]", 5_000)), // nested deeper than SQLite reads
	})
	return rapid.MakeConfig{
		Kinds: map[reflect.Kind]*rapid.Generator[any]{
			reflect.String: texts().AsAny(), reflect.Int: rapid.IntRange(0, 1<<31-1).AsAny(), reflect.Int64: times().AsAny(),
			reflect.Float64: rapid.Float64Range(0, 1e9).AsAny(),
		},
		Types: map[reflect.Type]*rapid.Generator[any]{
			reflect.TypeFor[muster.TaskState](): rapid.SampledFrom(muster.TaskStates).AsAny(),
			reflect.TypeFor[muster.Reason]():    rapid.OneOf(rapid.Just(muster.NoReason), rapid.SampledFrom(muster.Reasons)).AsAny(),
			reflect.TypeFor[muster.Outcome](): rapid.SampledFrom([]muster.Outcome{
				muster.AttemptSucceeded, muster.AttemptFailed, muster.AttemptTimedOut, muster.AttemptCancelled, muster.AttemptRejected, muster.AttemptLost,
			}).AsAny(),
			reflect.TypeFor[muster.WorkerState](): rapid.SampledFrom([]muster.WorkerState{
				muster.WorkerPending, muster.WorkerActive, muster.WorkerPaused, muster.WorkerDraining, muster.WorkerUnreachable, muster.WorkerGone,
			}).AsAny(),
			reflect.TypeFor[json.RawMessage](): raw.AsAny(),
		},
		Fields: map[reflect.Type]map[string]*rapid.Generator[any]{
			reflect.TypeFor[muster.Task](): {
				"WorkerName": absent, "Synthesized": absent, "Origin": absent, "Cached": absent, "Cache": absent, "FinishedAt": absent, "ExitCode": rapid.Ptr(rapid.IntRange(-1, 255), true).AsAny(),
				"Checkpoint": rapid.OneOf(rapid.Just(""), rapid.StringMatching(`[0-9a-f]{64}`)).AsAny(), "Progress": rapid.Ptr(rapid.Float64Range(0, 1), true).AsAny(),
				"Metrics": rapid.MapOfN(rapid.String(), rapid.Float64Range(-1e300, 1e300), 0, 3).AsAny(),
			},
			reflect.TypeFor[muster.Attempt]():  {"WorkerName": absent, "ExitCode": rapid.Ptr(rapid.IntRange(-1, 255), true).AsAny()},
			reflect.TypeFor[muster.Artifact](): {"SHA256": rapid.Just("ab").AsAny(), "CID": absent},
			reflect.TypeFor[muster.Worker](): {
				"Free": absent, "Running": absent, "Tasks": absent, "Load": absent, "Constrained": absent, "Health": absent,
				"UnsupportedFeatures": rapid.SliceOfN(rapid.SampledFrom(muster.SpecFeatures), 0, 3).AsAny(),
			},
		},
	}
}

func draw[T any](t *rapid.T, name string) T { return rapid.MakeCustom[T](generators()).Draw(t, name) }

func texts() *rapid.Generator[string] {
	return rapid.OneOf(rapid.Just(""), rapid.String(), rapid.SampledFrom([]string{"'; DROP TABLE job; --", "\x00", "ü\n\t\"", "null"}))
}

func times() *rapid.Generator[int64] {
	return rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(1, 1<<45))
}

// drawTask draws the mutable fields of a task.
func drawTask(t *rapid.T, fixed muster.Task) muster.Task {
	task := draw[muster.Task](t, "task")
	task.ID, task.Job, task.Index, task.Group, task.Name, task.Kind = fixed.ID, fixed.Job, fixed.Index, fixed.Group, fixed.Name, fixed.Kind
	task.Element, task.CreatedAt = fixed.Element, fixed.CreatedAt
	if task.ID.Num%3 == 1 {
		task.Origin = muster.TaskID{Job: 1 << 31, Num: muster.MaxTasks - 1}
	}
	switch n := rapid.IntRange(0, 3).Draw(t, "cache"); {
	case n == 0:
		task.Cache = &muster.TaskCache{Key: draw[string](t, "key"), Fields: []muster.CacheField{{Name: "run", Value: draw[string](t, "value")}}}
	case n == 1 && task.Origin == (muster.TaskID{}): // a reused task is not looked up
		task.Cache = &muster.TaskCache{Key: draw[string](t, "key"), Origin: muster.TaskID{Job: 7, Num: 3}}
		task.Cached, task.Origin = true, task.Cache.Origin
	}
	if task.State.HoldsResources() {
		task.Worker = "w-1"
		task.Attempt = max(1, task.Attempt)
	}
	if task.State.Final() {
		task.FinishedAt = max(1, draw[muster.Time](t, "finished"))
	}
	return task
}

func drawAttempt(t *rapid.T, id muster.AttemptID) muster.Attempt {
	a := draw[muster.Attempt](t, "attempt")
	a.ID, a.FinishedAt = id, max(1, a.FinishedAt)
	return a
}

func drawWorker(t *rapid.T, id muster.WorkerID) muster.Worker {
	w := draw[muster.Worker](t, "worker")
	w.ID = id
	if !w.Paused && !w.Draining {
		w.Deadline = 0
	}
	return w
}

// drawJob draws a job and its one group of size tasks, without rows.
func drawJob(t *rapid.T, id muster.JobID, size int) (muster.Job, muster.Group) {
	j, g := job(id, size)
	j.Name, j.Project, j.Kind, j.Owner = draw[string](t, "name"), draw[string](t, "project"), draw[string](t, "kind"), draw[string](t, "owner")
	j.Priority = rapid.IntRange(muster.MinPriority, muster.MaxPriority).Draw(t, "priority")
	j.Held = draw[bool](t, "held")
	j.Unsized = rapid.IntRange(0, muster.MaxStages).Draw(t, "unsized")
	j.Labels, j.Progress = draw[map[string]string](t, "labels"), rapid.Ptr(rapid.Float64Range(0, 1), true).Draw(t, "progress")
	j.CreatedAt, j.StartedAt, j.RetriedAt = draw[muster.Time](t, "created"), draw[muster.Time](t, "started"), draw[muster.Time](t, "retried")
	j.Spec.Labels = draw[map[string]string](t, "spec labels")
	j.Cost, j.Usage = draw[float64](t, "cost"), draw[muster.JobUsage](t, "usage")
	g.StartedAt, g.FinishedAt = draw[muster.Time](t, "group started"), draw[muster.Time](t, "group finished")
	g.UnmaterializedSince = draw[muster.Time](t, "unmaterialized since")
	g.Name, g.Reason, g.Message, g.Retained = draw[string](t, "group"), draw[muster.Reason](t, "reason"), draw[string](t, "message"), draw[bool](t, "retained")
	return j, g
}

// drawTasks commits a job with several groups and a part of their tasks as rows. It returns the job, its groups, and all tasks.
func drawTasks(t *testing.T, rt *rapid.T, f *fixture, id muster.JobID, unmaterialized []muster.TaskState) (muster.Job, []muster.Group, []muster.Task) {
	t.Helper()
	j, _ := job(id, 1)
	j.Spec.Tasks, j.Counts = nil, muster.Counts{}
	var groups []muster.Group
	var rows, all []muster.Task
	for i := range rapid.IntRange(1, 4).Draw(rt, "groups") {
		one, g := job(id, rapid.IntRange(1, 12).Draw(rt, "size"))
		j.Spec.Tasks = append(j.Spec.Tasks, one.Spec.Tasks[0])
		g.Index, g.First, g.Message = i, len(all), "without a row"
		g.UnmaterializedState = rapid.SampledFrom(unmaterialized).Draw(rt, "rest")
		g.Materialized = rapid.IntRange(0, g.Size).Draw(rt, "next")
		states := muster.TaskStates
		if rapid.Bool().Draw(rt, "alike") {
			states = []muster.TaskState{rapid.SampledFrom(states).Draw(rt, "all are")}
		}
		var stored []muster.Task
		for num := g.First; num < g.First+g.Size; num++ {
			if num < g.First+g.Materialized || rapid.IntRange(0, 3).Draw(rt, "has a row") == 0 {
				r := row(&j, &g, num, rapid.SampledFrom(states).Draw(rt, "state"))
				r.Message = "a row"
				stored, all = append(stored, r), append(all, r)
			} else {
				all = append(all, store.SynthesizeTask(&j, &g, num))
			}
		}
		part := j
		recount(&part, &g, stored)
		j.Counts = j.Counts.Add(g.Counts)
		groups, rows = append(groups, g), append(rows, stored...)
	}
	j.State = j.Counts.State()
	if j.State.Final() {
		j.FinishedAt = 9_000
	}
	f.mustCommit(t, muster.Rows{Jobs: []muster.Job{j}, Groups: groups, Tasks: rows})
	return j, groups, all
}
