package api

import (
	"context"
	"encoding/json"
	"math"
	"net/http"
	"slices"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/series"
	"github.com/muster-dev/muster/internal/tasklog"
)

const (
	// metricAttempts is how many attempts the history of a task has at most: each is a log to read.
	metricAttempts = 20
	// maxCheckpoints is how many times of checkpoints an attempt has at most.
	maxCheckpoints = 1_000
)

func (s *server) metricRoutes() {
	handle(s, route{id: "get-task-metrics", method: http.MethodGet, path: prefixed("/tasks/{task}/metrics"), tag: "tasks", verb: auth.ReadJobs,
		summary: "Show what a task reported over time: progress, steps, metrics and checkpoints of its attempts"}, s.taskMetrics)
}

type metricsInput struct {
	TaskPath
	Attempt int `query:"attempt" minimum:"1" maximum:"2147483647" doc:"only this one; default: all"`
	Points  int `query:"points" minimum:"10" maximum:"5000" default:"1000" doc:"most points of each attempt"`
}

func (s *server) taskMetrics(ctx context.Context, in *metricsInput) (*body[wire.Metrics], error) {
	task, attempts, err := s.taskAttempts(ctx, in.Task)
	if err != nil {
		return nil, err
	}
	if in.Attempt > 0 {
		attempts = slices.DeleteFunc(attempts, func(a muster.Attempt) bool { return a.ID.N != in.Attempt })
		if len(attempts) == 0 {
			return nil, noAttempt(task, in.Attempt)
		}
	}
	attempts = attempts[max(0, len(attempts)-metricAttempts):]
	leave, err := s.charts.take(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	shown := wire.Metrics{Task: task.ID, State: task.State, Attempts: make([]wire.AttemptMetrics, len(attempts))}
	for i := range attempts {
		if shown.Attempts[i], err = s.attemptMetrics(ctx, &attempts[i], in.Points); err != nil {
			return nil, err
		}
	}
	return answer(shown), nil
}

func (s *server) attemptMetrics(ctx context.Context, a *muster.Attempt, points int) (wire.AttemptMetrics, error) {
	shown := wire.AttemptMetrics{Attempt: a.ID.N, Outcome: a.Outcome, StartedAt: a.StartedAt, FinishedAt: a.FinishedAt, Checkpoints: []muster.Time{}}
	curve := series.NewCurve(points)
	err := s.records(ctx, logPlace{task: a.ID.Task, attempt: a.ID.N}, func(r tasklog.Record, _ int64) error {
		if ctx.Err() != nil {
			return ctx.Err() // nobody waits for it
		}
		p, ok := pointOf(r)
		if !ok {
			return nil
		}
		if p.Checkpoint {
			if shown.Checkpoints = append(shown.Checkpoints, p.At); len(shown.Checkpoints) > maxCheckpoints {
				shown.Checkpoints = everySecond(shown.Checkpoints)
			}
		}
		if p.Checkpoint = false; p.Progress != nil || p.Step != nil || len(p.Metrics) > 0 {
			curve.Add(p)
		}
		return nil
	})
	shown.Taken, shown.Points = curve.Len(), curve.Points()
	return shown, err
}

// everySecond keeps every second time, and the last one.
func everySecond(times []muster.Time) []muster.Time {
	half := times[:0]
	for i := (len(times) - 1) % 2; i < len(times); i += 2 {
		half = append(half, times[i])
	}
	return half
}

// pointOf reads the point of a record, and says whether it is one.
func pointOf(r tasklog.Record) (p muster.Point, ok bool) {
	if r.Stream != tasklog.Points || len(r.Data) > maxSample || json.Unmarshal(r.Data, &p) != nil {
		return muster.Point{}, false
	}
	p.At = muster.TimeOf(r.At)
	if p.Progress != nil && (*p.Progress < 0 || *p.Progress > 1 || math.IsNaN(*p.Progress)) {
		p.Progress = nil
	}
	return p, true
}
