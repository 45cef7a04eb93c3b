package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"strconv"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/wire"
)

// Series is what an attempt used over time.
type Series = wire.Series

// Usage returns what an attempt of a task used so far; attempt 0 is the last one. Of
// a long series it returns at most so many points, which keep its peaks; 0 means 1000.
func (c *Client) Usage(ctx context.Context, id muster.TaskID, attempt, points int) (Series, error) {
	q := url.Values{}
	if attempt > 0 {
		q.Set("attempt", strconv.Itoa(attempt))
	}
	if points > 0 {
		q.Set("points", strconv.Itoa(points))
	}
	var s Series
	err := c.do(ctx, call{method: http.MethodGet, path: usagePath(id), query: q, out: &s, idempotent: true})
	return s, err
}

// Sample is one of an attempt.
type Sample struct {
	Attempt int `json:"attempt"`
	muster.Sample
}

// Samples goes on where s ends, until the task has ended: over its later attempts too,
// unless only is set. Over broken connections and restarts of the server no sample is lost or
// doubled. An error ends the sequence.
func (c *Client) Samples(ctx context.Context, s Series, singleAttempt bool) iter.Seq2[Sample, error] {
	q := url.Values{"follow": {"true"}}
	if singleAttempt && s.Attempt > 0 {
		q.Set("attempt", strconv.Itoa(s.Attempt))
	}
	return followAttempts(ctx, c, usagePath(s.Task), q, s.Next, s.Attempt, wire.LogSample, func(attempt int, data muster.Sample) Sample {
		return Sample{Attempt: attempt, Sample: data}
	})
}

func usagePath(id muster.TaskID) string { return taskPath(id) + "/usage" }
