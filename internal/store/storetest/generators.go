package storetest

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/store"
	"pgregory.net/rapid"
)

// The generators draw every stored field, with difficult values:
// odd texts, absent and zero numbers, floats that are not decimals.

func drawText(t *rapid.T, name string) string {
	return rapid.OneOf(rapid.Just(""), rapid.String(), rapid.SampledFrom([]string{"'; DROP TABLE job; --", "\x00", "ü\n\t\"", "null"})).Draw(t, name)
}

func drawTime(t *rapid.T, name string) muster.Time {
	return muster.Time(rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(1, 1<<45)).Draw(t, name))
}

func drawPtr[T any](t *rapid.T, g *rapid.Generator[T], name string) *T {
	return rapid.Ptr(g, true).Draw(t, name)
}

func drawLabels(t *rapid.T, name string) map[string]string {
	return rapid.MapOfN(rapid.String(), rapid.String(), 0, 3).Draw(t, name)
}

func drawArtifacts(t *rapid.T, name string) []muster.Artifact {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) muster.Artifact {
		return muster.Artifact{Name: rapid.String().Draw(t, "name"), Size: rapid.Int64Range(0, 1<<62).Draw(t, "size"), SHA256: "ab"}
	}), 0, 3).Draw(t, name)
}

func drawUsage(t *rapid.T, name string) *muster.Usage {
	return drawPtr(t, rapid.Custom(func(t *rapid.T) muster.Usage {
		return muster.Usage{
			WallSeconds: rapid.Float64Range(0, 1e9).Draw(t, "wall"), CPUSeconds: rapid.Float64Range(0, 1e9).Draw(t, "cpu"),
			CPUAvg: rapid.Float64Range(0, 1e3).Draw(t, "avg"), MemoryPeak: muster.Size(rapid.Int64Range(0, 1<<40).Draw(t, "peak")),
		}
	}), name)
}

func drawExitCode(t *rapid.T) *int { return drawPtr(t, rapid.IntRange(-1, 255), "exit code") }

func drawFraction(t *rapid.T) *float64 { return drawPtr(t, rapid.Float64Range(0, 1), "progress") }

func drawReason(t *rapid.T) muster.Reason {
	return rapid.OneOf(rapid.Just(muster.NoReason), rapid.SampledFrom(muster.Reasons)).Draw(t, "reason")
}

// drawTask draws the mutable fields of a task.
func drawTask(t *rapid.T, fixed muster.Task) muster.Task {
	task := muster.Task{
		ID: fixed.ID, Job: fixed.Job, Index: fixed.Index, Group: fixed.Group, Name: fixed.Name, Kind: fixed.Kind,
		Element: fixed.Element, CreatedAt: fixed.CreatedAt,
		State:  rapid.SampledFrom(muster.TaskStates).Draw(t, "state"),
		Reason: drawReason(t), Message: drawText(t, "message"), ExitCode: drawExitCode(t),
		Attempt: rapid.IntRange(0, 1<<31-1).Draw(t, "attempt"),
		Retried: rapid.IntRange(0, 100).Draw(t, "retried"), Crashes: rapid.IntRange(0, 100).Draw(t, "crashes"),
		Worker: muster.WorkerID(drawText(t, "worker")),
		Grant: drawPtr(t, rapid.Custom(func(t *rapid.T) muster.Grant {
			return muster.Grant{
				CPUs: rapid.Float64Range(0, 1e3).Draw(t, "cpus"), Memory: muster.Size(rapid.Int64Range(0, 1<<50).Draw(t, "memory")),
				Slots: rapid.IntRange(0, 9).Draw(t, "slots"), GPUs: rapid.SliceOfN(rapid.String(), 0, 2).Draw(t, "gpus"),
			}
		}), "grant"),
		Checkpoint: rapid.OneOf(rapid.Just(""), rapid.StringMatching(`[0-9a-f]{64}`)).Draw(t, "checkpoint"),
		Progress:   drawFraction(t), Step: drawText(t, "step"),
		Metrics:   rapid.MapOfN(rapid.String(), rapid.Float64Range(-1e300, 1e300), 0, 3).Draw(t, "metrics"),
		Artifacts: drawArtifacts(t, "artifacts"), Usage: drawUsage(t, "usage"), Image: drawText(t, "image"),
		LogSize:  rapid.Int64Range(0, 1<<40).Draw(t, "log size"),
		QueuedAt: drawTime(t, "queued"), NotBefore: drawTime(t, "not before"), AssignedAt: drawTime(t, "assigned"), StartedAt: drawTime(t, "started"),
	}
	if rapid.Bool().Draw(t, "has result") {
		b := must(json.Marshal(map[string]string{"value": drawText(t, "result")}))(t)
		task.Result = b
	}
	if task.State.HoldsResources() {
		task.Worker = "w-1"
		task.Attempt = max(1, task.Attempt)
	}
	if task.State.Final() {
		task.FinishedAt = max(1, drawTime(t, "finished"))
	}
	return task
}

func drawAttempt(t *rapid.T, id muster.AttemptID) muster.Attempt {
	return muster.Attempt{
		ID: id, Worker: muster.WorkerID(drawText(t, "worker")),
		Outcome: rapid.SampledFrom([]muster.Outcome{
			muster.AttemptSucceeded, muster.AttemptFailed, muster.AttemptTimedOut, muster.AttemptCancelled, muster.AttemptRejected, muster.AttemptLost,
		}).Draw(t, "outcome"),
		Reason: drawReason(t), Message: drawText(t, "message"), ExitCode: drawExitCode(t), Artifacts: drawArtifacts(t, "artifacts"), Usage: drawUsage(t, "usage"), Image: drawText(t, "image"),
		LogSize:    rapid.Int64Range(0, 1<<40).Draw(t, "log size"),
		AssignedAt: drawTime(t, "assigned"), StartedAt: drawTime(t, "started"), FinishedAt: max(1, drawTime(t, "finished")),
	}
}

// drawPolicy draws absent lists, which allow all, and empty ones, which allow nothing.
func drawPolicy(t *rapid.T) muster.Allow {
	list := func(name string) []string {
		return rapid.OneOf(rapid.Just([]string(nil)), rapid.Just([]string{}), rapid.SliceOfN(rapid.String(), 1, 2)).Draw(t, name)
	}
	return muster.Allow{
		Images: list("images"), Users: list("users"), Mounts: list("mounts"), Env: list("env"), HostNetwork: rapid.Bool().Draw(t, "host network"),
	}
}

func drawWorker(t *rapid.T, id muster.WorkerID) muster.Worker {
	w := muster.Worker{
		ID: id, Name: drawText(t, "name"), Version: drawText(t, "version"), Labels: drawLabels(t, "labels"),
		State: rapid.SampledFrom([]muster.WorkerState{
			muster.WorkerActive, muster.WorkerPaused, muster.WorkerDraining, muster.WorkerUnreachable, muster.WorkerGone,
		}).Draw(t, "state"),
		Tags: rapid.SliceOfN(rapid.String(), 0, 3).Draw(t, "tags"), Kinds: rapid.SliceOfN(rapid.String(), 0, 3).Draw(t, "kinds"),
		Price: rapid.Float64Range(0, 1e6).Draw(t, "price"), Address: drawText(t, "address"),
		Resources: muster.Resources{
			CPUs: rapid.Float64Range(0, 1e3).Draw(t, "cpus"), Memory: muster.Size(rapid.Int64Range(0, 1<<50).Draw(t, "memory")),
			Slots: rapid.IntRange(0, 99).Draw(t, "slots"), MaxTasks: rapid.IntRange(0, 9).Draw(t, "max tasks"),
			GPUs: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) muster.GPU {
				return muster.GPU{UUID: drawText(t, "uuid"), Index: rapid.IntRange(0, 7).Draw(t, "index"), Name: drawText(t, "gpu"), Memory: 1 << 33, Quarantined: drawText(t, "quarantined")}
			}), 0, 2).Draw(t, "gpus"),
		},
		Allow:               drawPtr(t, rapid.Custom(drawPolicy), "allow"),
		UnsupportedFeatures: rapid.SliceOfN(rapid.SampledFrom(muster.SpecFeatures), 0, 3).Draw(t, "lacks"),
		Projects:            rapid.SliceOfN(rapid.String(), 0, 2).Draw(t, "projects"),
		CustomKinds: rapid.SampledFrom([]json.RawMessage{
			nil, json.RawMessage(`[]`), json.RawMessage(`[{"name": "resize", "about": "é\u0000\"<", "entry": ["./resize"]}]`),
			json.RawMessage(strings.Repeat("[", 5_000) + strings.Repeat("]", 5_000)), // nested deeper than SQLite reads
		}).Draw(t, "own kinds"),
		Paused: rapid.Bool().Draw(t, "paused"), Draining: rapid.Bool().Draw(t, "draining"),
		JoinedAt: drawTime(t, "joined"), LastSeenAt: drawTime(t, "seen"),
	}
	if w.Paused || w.Draining {
		w.Deadline = drawTime(t, "deadline")
	}
	return w
}

// drawJob draws a job and its one group of size tasks, without rows.
func drawJob(t *rapid.T, id muster.JobID, size int) (muster.Job, muster.Group) {
	j, g := job(id, size)
	j.Name, j.Project, j.Kind, j.Owner = drawText(t, "name"), drawText(t, "project"), drawText(t, "kind"), drawText(t, "owner")
	j.Priority = rapid.IntRange(muster.MinPriority, muster.MaxPriority).Draw(t, "priority")
	j.Labels, j.Progress = drawLabels(t, "labels"), drawFraction(t)
	j.CreatedAt, j.StartedAt, j.RetriedAt = drawTime(t, "created"), drawTime(t, "started"), drawTime(t, "retried")
	j.Spec.Labels = drawLabels(t, "spec labels")
	j.Cost = rapid.Float64Range(0, 1e9).Draw(t, "cost")
	j.Usage = muster.JobUsage{
		EnergyWh: rapid.Float64Range(0, 1e9).Draw(t, "energy"), CPUSeconds: rapid.Float64Range(0, 1e9).Draw(t, "cpu"),
		GPUSeconds: rapid.Float64Range(0, 1e9).Draw(t, "gpu"), WallSeconds: rapid.Float64Range(0, 1e9).Draw(t, "wall"),
		MemoryPeak: muster.Size(rapid.Int64Range(0, 1<<50).Draw(t, "peak")), Attempts: rapid.Int64Range(0, 1<<40).Draw(t, "attempts"),
	}
	g.StartedAt, g.FinishedAt = drawTime(t, "group started"), drawTime(t, "group finished")
	g.Name, g.Reason, g.Message, g.Retained = drawText(t, "group"), drawReason(t), drawText(t, "message"), rapid.Bool().Draw(t, "retained")
	g.UnmaterializedSince = drawTime(t, "unmaterialized since")
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
