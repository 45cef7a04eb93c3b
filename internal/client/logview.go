package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/wire"
)

// LogPosition is a place in the log of an attempt.
type LogPosition struct {
	Attempt  int   // 0 means the last one
	Offset   int64 // -1 means the end, or the beginning if it is not Backward
	Backward bool  // what is before Offset, rather than what is from it on
}

func (p LogPosition) query() url.Values {
	q := url.Values{"offset": {strconv.FormatInt(p.Offset, 10)}}
	if p.Attempt > 0 {
		q.Set("attempt", strconv.Itoa(p.Attempt))
	}
	if p.Backward {
		q.Set("direction", "backward")
	}
	return q
}

// LogWindow reads at most so many bytes of a log, but one record if there is any.
func (c *Client) LogWindow(ctx context.Context, id muster.TaskID, pos LogPosition, bytes int) (wire.LogWindow, error) {
	q := pos.query()
	q.Set("bytes", strconv.Itoa(bytes))
	var w wire.LogWindow
	err := c.do(ctx, call{method: http.MethodGet, path: taskPath(id) + "/logs/window", query: q, out: &w, idempotent: true})
	return w, err
}

// SearchLog finds the next records with a text, at most so many. It searches for 2 seconds at most: the answer says how far it got.
func (c *Client) SearchLog(ctx context.Context, id muster.TaskID, pos LogPosition, text string, caseSensitive bool, limit int) (wire.LogMatches, error) {
	q := pos.query()
	q.Set("q", text)
	q.Set("limit", strconv.Itoa(limit))
	q.Set("case", strconv.FormatBool(caseSensitive))
	var matches wire.LogMatches
	err := c.do(ctx, call{method: http.MethodGet, path: taskPath(id) + "/logs/search", query: q, out: &matches, idempotent: true})
	return matches, err
}
