package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/streaming"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/tasklog"
	"github.com/muster-dev/muster/internal/usageseries"
)

func (s *server) usageRoutes() {
	stream(s, route{id: "get-usage", method: http.MethodGet, path: apiPath("/tasks/{task}/usage"), tag: "tasks", verb: auth.ReadJobs, jsonType: reflect.TypeFor[wire.Series](), events: true,
		summary: "Show what a task used over time, or watch it as server-sent events (Accept: text/event-stream or follow=true)"}, s.getUsage)
}

// maxSample is the most bytes of a sample that are read: no honest one comes near, and it bounds
// the memory that a series takes.
const maxSample = 16 << 10

type usageInput struct {
	TaskPath
	Attempt int    `query:"attempt" minimum:"1" maximum:"2147483647" doc:"default: the last one; when following, those after it too"`
	Points  int    `query:"points" minimum:"10" maximum:"5000" default:"1000" doc:"most samples of the answer. If there are more, one stands for several that follow each other: it has the time of their last, and the highest of each figure. Server-sent events are not thinned"`
	Follow  string `query:"follow" enum:"true,false" doc:"go on until the task has ended; default for server-sent events: true"`
	Accept  string `header:"Accept" hidden:"true"`
	Last    string `header:"Last-Event-ID" maxLength:"64" doc:"go on after this event, or after the next of an answer"`
}

func (s *server) getUsage(w http.ResponseWriter, r *http.Request, in *usageInput) error {
	task, err := s.readTask(r.Context(), in.Task)
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
	if in.Last != "" { // it has no effect here, and must be valid
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
	encoded, err := json.Marshal(resp)
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = streaming.NewWriter(w, r).Write(append(encoded, '\n')) // a caller who left does not read it
	return nil
}

// sampleEvent makes the event of a sample.
func sampleEvent(r tasklog.Record) (string, any) {
	sample, ok := sampleOf(r)
	if !ok {
		return "", nil
	}
	return wire.LogSample, sample
}

// sampleOf reads the sample of a record, and says whether it is one.
func sampleOf(r tasklog.Record) (sample muster.Sample, ok bool) {
	if r.Stream != tasklog.Usage || len(r.Data) > maxSample {
		return sample, false
	}
	return sample, json.Unmarshal(r.Data, &sample) == nil
}

// series reads what an attempt used.
func (s *server) series(ctx context.Context, task muster.Task, pos logPosition, points int) (wire.Series, error) {
	resp := wire.Series{Task: task.ID, Attempt: pos.attempt, State: task.State}
	attempts, err := s.Store.Attempts(ctx, task.ID)
	if err != nil {
		return resp, err
	}
	var attempt muster.Attempt
	if i := slices.IndexFunc(attempts, func(a muster.Attempt) bool { return a.ID.N == pos.attempt }); i >= 0 {
		attempt = attempts[i]
	}
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
			return ctx.Err() // nobody waits for it
		}
		pos.offset = after
		if sample, ok := sampleOf(r); ok {
			if startedAt == 0 { // what tells it is still under way
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
