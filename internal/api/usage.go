package api

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"reflect"
	"slices"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/rest"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/tasklog"
	"github.com/muster-dev/muster/internal/usageseries"
)

func (s *server) usageRoutes() {
	rest.Stream(s.router, rest.Route{ID: "get-usage", Method: http.MethodGet, Path: rest.Path("/tasks/{task}/usage"), Tag: "tasks", Shared: true, Verb: auth.ReadJobs, JSONType: reflect.TypeFor[wire.Series](), Events: true,
		Summary: "Show the usage of a task over time, or stream it as server-sent events (Accept: text/event-stream or follow=true)"}, s.getUsage)
	rest.Stream(s.router, rest.Route{ID: "get-task-metrics", Method: http.MethodGet, Path: rest.Path("/tasks/{task}/metrics"), Tag: "tasks", Shared: true, Verb: auth.ReadJobs, JSONType: reflect.TypeFor[wire.Metrics](),
		Summary: "Show what a task reported over time: progress, steps, metrics and checkpoints per attempt"}, s.taskMetrics)
}

// maxSample is the maximum size of a sample, in bytes. Real samples are much smaller; it bounds
// the memory of a series.
const maxSample = 16 << 10

type usageInput struct {
	rest.TaskPath
	Attempt int    `query:"attempt" minimum:"1" maximum:"2147483647" doc:"default: the last one; when following, also later ones"`
	Points  int    `query:"points" minimum:"10" maximum:"5000" default:"1000" doc:"maximum number of samples. If there are more, adjacent samples are merged: the result has the time of the last one and the maximum of each value. Server-sent events are not merged"`
	Follow  string `query:"follow" enum:"true,false" doc:"continue until the task has ended; default for server-sent events: true"`
	Accept  string `header:"Accept" hidden:"true"`
	Last    string `header:"Last-Event-ID" maxLength:"64" doc:"resume after this event, or after next of an answer"`
}

func (s *server) getUsage(w http.ResponseWriter, r *http.Request, in *usageInput) error {
	task, err := s.Store.Task(r.Context(), in.ID())
	if err != nil {
		return err
	}
	if wantsEventStream(in.Accept, in.Follow) {
		pos, err := s.startPosition(r.Context(), task, in.Attempt, 0, in.Last)
		if err != nil {
			return err
		}
		f := &follower{server: s, pos: pos, event: sampleEvent, follow: in.Follow != "false", singleAttempt: in.Attempt > 0}
		return f.serve(w, r)
	}
	if in.Last != "" { // it has no effect, but must be valid
		if _, _, err := parseLogPosition(in.Last); err != nil {
			return err
		}
	}
	pos, err := s.startPosition(r.Context(), task, in.Attempt, 0, "")
	if err != nil {
		return err
	}
	s.awaitCompleteLog(r.Context(), task, pos)
	resp, err := s.series(r.Context(), task, pos, in.Points)
	if err != nil {
		return err
	}
	return writeJSON(w, r, resp)
}

// sampleEvent returns the event of a sample.
func sampleEvent(r tasklog.Record) (string, any) {
	sample, ok := sampleOf(r)
	if !ok {
		return "", nil
	}
	return wire.LogSample, sample
}

// sampleOf decodes the sample of a record; ok is false if it has none.
func sampleOf(r tasklog.Record) (sample muster.Sample, ok bool) {
	if r.Stream != tasklog.Usage || len(r.Data) > maxSample {
		return sample, false
	}
	return sample, json.Unmarshal(r.Data, &sample) == nil
}

// series reads the usage of an attempt.
func (s *server) series(ctx context.Context, task muster.Task, pos logPosition, points int) (wire.Series, error) {
	resp := wire.Series{Task: task.ID, Attempt: pos.attempt, State: task.State}
	attempts, err := s.Store.Attempts(ctx, task.ID)
	if err != nil {
		return resp, err
	}
	attempt, _ := findAttempt(attempts, pos.attempt)
	release, err := s.chartLimiter.acquire(ctx)
	if err != nil {
		return resp, err
	}
	defer release() // before a slow client reads the answer
	thinned := usageseries.NewSampleSeries(points)
	sums := usageseries.Accumulator{Shared: task.Grant != nil && task.Grant.GPUMemory > 0}
	startedAt := attempt.StartedAt
	prev := startedAt.Std()
	err = s.records(ctx, pos, func(r tasklog.Record, after int64) error {
		pos.offset = after
		if sample, ok := sampleOf(r); ok {
			if startedAt == 0 { // the start was not reported yet
				startedAt, prev = sample.At, sample.At.Std()
			}
			sums.AddSince(prev, &sample)
			prev = sample.At.Std()
			thinned.Add(sample)
		}
		return nil
	})
	if err != nil {
		return resp, err
	}
	resp.Usage, resp.Taken, resp.Samples, resp.Next = attempt.Usage, thinned.Len(), thinned.Points(), pos.String()
	if resp.Usage == nil && thinned.Len() > 0 {
		u := sums.Usage()
		u.WallSeconds = max(0, prev.Sub(startedAt.Std()).Seconds())
		u.CPUSeconds = u.CPUAvg * u.WallSeconds
		resp.Usage, resp.SoFar = &u, true
	}
	return resp, nil
}

const (
	// maxMetricAttempts is the maximum number of attempts in an answer: each is a log to read.
	maxMetricAttempts = 20
	// maxCheckpoints is the maximum number of checkpoint times of an attempt.
	maxCheckpoints = 1_000
	// maxMetricBytes is the approximate maximum size of all points of an answer, shared by its attempts.
	maxMetricBytes = 16 << 20
)

type metricsInput struct {
	rest.TaskPath
	Attempt int `query:"attempt" minimum:"1" maximum:"2147483647" doc:"only this attempt; default: all"`
	Points  int `query:"points" minimum:"10" maximum:"5000" default:"1000" doc:"maximum number of points per attempt; fewer if the answer would exceed about 16 MiB"`
}

func (s *server) taskMetrics(w http.ResponseWriter, r *http.Request, in *metricsInput) error {
	encoded, err := s.encodeMetrics(r.Context(), in)
	if err != nil {
		return err
	}
	encoded.write(w, r)
	return nil
}

func (s *server) encodeMetrics(ctx context.Context, in *metricsInput) (encodedPage, error) {
	task, attempts, err := s.taskAttempts(ctx, in.ID())
	if err != nil {
		return nil, err
	}
	if in.Attempt > 0 {
		attempts = slices.DeleteFunc(attempts, func(a muster.Attempt) bool { return a.ID.N != in.Attempt })
		if len(attempts) == 0 {
			return nil, attemptNotFound(task, in.Attempt)
		}
	}
	attempts = attempts[max(0, len(attempts)-maxMetricAttempts):]
	release, err := s.chartLimiter.acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	resp := struct {
		wire.Metrics

		Attempts []json.RawMessage `json:"attempts"`
	}{wire.Metrics{Task: task.ID, State: task.State}, make([]json.RawMessage, len(attempts))}
	for i := range attempts {
		if resp.Attempts[i], err = s.attemptMetrics(ctx, &attempts[i], curveLimits{in.Points, maxMetricBytes / len(attempts)}); err != nil {
			return nil, err
		}
	}
	return encode(resp)
}

// maxCurveBytes is the size of the cache of curves.
const maxCurveBytes = 64 << 20

// curveKey identifies a curve by its source and its limits.
type curveKey struct {
	attempt muster.AttemptID
	size    int64 // of the log
	limits  curveLimits
}

// curveLimits bounds the curve of an attempt.
type curveLimits struct{ points, bytes int }

// attemptMetrics returns what an attempt reported: a wire.AttemptMetrics as JSON. For a finished attempt it is cached.
func (s *server) attemptMetrics(ctx context.Context, a *muster.Attempt, limits curveLimits) ([]byte, error) {
	size, err := s.Logs.Size(ctx, a.ID) // before the log is read: a worker may still send the rest of it
	if err != nil {
		return nil, err
	}
	key := curveKey{a.ID, size, limits}
	if text, ok := s.curveCache.Get(key); ok {
		return text, nil
	}
	metrics, err := s.readMetrics(ctx, a, limits)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(metrics)
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	if a.FinishedAt != 0 {
		s.curveCache.Put(key, text)
	}
	return text, nil
}

// readMetrics reads an attempt's reports from its log.
func (s *server) readMetrics(ctx context.Context, a *muster.Attempt, limits curveLimits) (wire.AttemptMetrics, error) {
	metrics := wire.AttemptMetrics{Attempt: a.ID.N, Outcome: a.Outcome, StartedAt: a.StartedAt, FinishedAt: a.FinishedAt, Checkpoints: []muster.Time{}}
	curve := usageseries.NewProgressSeries(limits.points, limits.bytes)
	err := s.records(ctx, logPosition{task: a.ID.Task, attempt: a.ID.N}, func(r tasklog.Record, _ int64) error {
		p, ok := pointOf(r)
		if !ok {
			return nil
		}
		if p.Checkpoint {
			if metrics.Checkpoints = append(metrics.Checkpoints, p.At); len(metrics.Checkpoints) > maxCheckpoints {
				metrics.Checkpoints = halve(metrics.Checkpoints)
			}
		}
		if p.Checkpoint = false; p.Progress != nil || p.Step != nil || len(p.Metrics) > 0 {
			curve.Add(p)
		}
		return nil
	})
	metrics.Taken, metrics.Points = curve.Len(), curve.Points()
	return metrics, err
}

// halve keeps every second time, and the last one.
func halve(times []muster.Time) []muster.Time {
	kept := times[:0]
	for i := (len(times) - 1) % 2; i < len(times); i += 2 {
		kept = append(kept, times[i])
	}
	return kept
}

// pointOf decodes the point of a record; ok is false if it has none.
func pointOf(r tasklog.Record) (p muster.Point, ok bool) {
	if r.Stream != tasklog.Progress || len(r.Data) > maxSample || json.Unmarshal(r.Data, &p) != nil {
		return muster.Point{}, false
	}
	p.At = muster.NewTime(r.At)
	if p.Progress != nil && (*p.Progress < 0 || *p.Progress > 1 || math.IsNaN(*p.Progress)) {
		p.Progress = nil
	}
	return p, true
}
