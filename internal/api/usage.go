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
	"github.com/muster-dev/muster/internal/series"
	"github.com/muster-dev/muster/internal/tasklog"
)

func (s *server) usageRoutes() {
	stream(s, route{id: "get-usage", method: http.MethodGet, path: prefixed("/tasks/{task}/usage"), tag: "tasks", verb: auth.ReadJobs, json: reflect.TypeFor[wire.Series](), events: true,
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
	if streams(in.Accept, in.Follow) {
		at, err := s.begin(r.Context(), task, in.Attempt, 0, in.Last)
		if err != nil {
			return err
		}
		f := &follower{server: s, place: at, event: sampleEvent, follow: in.Follow != "false", fixed: in.Attempt > 0}
		return f.serve(w, r)
	}
	if in.Last != "" { // it has no effect here, and must be valid
		if _, _, err := parsePlace(in.Last); err != nil {
			return err
		}
	}
	at, err := s.begin(r.Context(), task, in.Attempt, 0, "")
	if err != nil {
		return err
	}
	s.settleLog(r.Context(), task, at)
	answer, err := s.series(r.Context(), task, at, in.Points)
	if err != nil {
		return err
	}
	body, err := json.Marshal(answer)
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = streaming.Writer(w, r).Write(append(body, '\n')) // a caller who left does not read it
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
func (s *server) series(ctx context.Context, task muster.Task, at logPlace, points int) (wire.Series, error) {
	answer := wire.Series{Task: task.ID, Attempt: at.attempt, State: task.State}
	attempts, err := s.Store.Attempts(ctx, task.ID)
	if err != nil {
		return answer, err
	}
	var attempt muster.Attempt
	if i := slices.IndexFunc(attempts, func(a muster.Attempt) bool { return a.ID.N == at.attempt }); i >= 0 {
		attempt = attempts[i]
	}
	leave, err := s.charts.take(ctx)
	if err != nil {
		return answer, err
	}
	defer leave() // before a slow client reads the answer
	thin := series.NewSampleSeries(points)
	sums := series.Accumulator{Shared: task.Grant != nil && task.Grant.GPUMemory > 0}
	began := attempt.StartedAt
	before := began.Std()
	err = s.records(ctx, at, func(r tasklog.Record, after int64) error {
		if ctx.Err() != nil {
			return ctx.Err() // nobody waits for it
		}
		at.offset = after
		if sample, ok := sampleOf(r); ok {
			if began == 0 { // what tells it is still under way
				began, before = sample.At, sample.At.Std()
			}
			sums.AddSince(before, &sample)
			before = sample.At.Std()
			thin.Add(sample)
		}
		return nil
	})
	if err != nil {
		return answer, err
	}
	answer.Usage, answer.Taken, answer.Samples, answer.Next = attempt.Usage, thin.Len(), thin.Points(), at.String()
	if answer.Usage == nil && thin.Len() > 0 {
		u := sums.Usage()
		u.WallSeconds = max(0, before.Sub(began.Std()).Seconds())
		u.CPUSeconds = u.CPUAvg * u.WallSeconds
		answer.Usage, answer.SoFar = &u, true
	}
	return answer, nil
}
