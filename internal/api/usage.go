package api

import (
	"context"
	"encoding/json"
	"net/http"
	"reflect"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/tasklog"
	"github.com/muster-dev/muster/internal/usageseries"
)

func (s *server) usageRoutes() {
	stream(s, route{id: "get-usage", method: http.MethodGet, path: apiPath("/tasks/{task}/usage"), tag: "tasks", verb: auth.ReadJobs, jsonType: reflect.TypeFor[wire.Series](), events: true,
		summary: "Show the usage of a task over time, or stream it as server-sent events (Accept: text/event-stream or follow=true)"}, s.getUsage)
}

// maxSample is the maximum size of a sample, in bytes. Real samples are much smaller; it bounds
// the memory of a series.
const maxSample = 16 << 10

type usageInput struct {
	TaskPath
	Attempt int    `query:"attempt" minimum:"1" maximum:"2147483647" doc:"default: the last one; when following, also later ones"`
	Points  int    `query:"points" minimum:"10" maximum:"5000" default:"1000" doc:"maximum number of samples. If there are more, adjacent samples are merged: the result has the time of the last one and the maximum of each value. Server-sent events are not merged"`
	Follow  string `query:"follow" enum:"true,false" doc:"continue until the task has ended; default for server-sent events: true"`
	Accept  string `header:"Accept" hidden:"true"`
	Last    string `header:"Last-Event-ID" maxLength:"64" doc:"resume after this event, or after next of an answer"`
}

func (s *server) getUsage(w http.ResponseWriter, r *http.Request, in *usageInput) error {
	task, err := s.Store.Task(r.Context(), in.id)
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
		if ctx.Err() != nil {
			return ctx.Err() // the client left
		}
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
