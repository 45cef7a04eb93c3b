package client

import (
	"context"
	"encoding/json"
	"iter"
	"net/url"
	"strconv"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/wire"
)

// The streams of a log.
const (
	Stdout = wire.Stdout
	Stderr = wire.Stderr
	System = wire.System // a word from Muster itself
)

// LogOptions select output. The zero value is all output of the last attempt so
// far.
type LogOptions struct {
	Attempt int    // 0 means the last one
	Stream  string // Stdout or Stderr; "" means all
	Tail    int    // only this many last lines to begin with; 0 means all
	Follow  bool   // until the task has ended, over its later attempts too
}

// LogLine is one piece of output: a whole line with its end, or a part of a
// long or unfinished one.
type LogLine struct {
	Attempt int
	Stream  string
	At      muster.Time
	Data    []byte
}

// Logs reads a task's output in order. Over broken connections and restarts of
// the server no line is lost or doubled. An error ends the sequence.
func (c *Client) Logs(ctx context.Context, id muster.TaskID, o LogOptions) iter.Seq2[LogLine, error] {
	q := url.Values{"follow": {strconv.FormatBool(o.Follow)}}
	set(q, "stream", o.Stream)
	if o.Attempt > 0 {
		q.Set("attempt", strconv.Itoa(o.Attempt))
	}
	if o.Tail > 0 {
		q.Set("tail", strconv.Itoa(o.Tail))
	}
	return followAttempts(ctx, c, taskPath(id)+"/logs", q, "", o.Attempt, wire.LogOutput, func(attempt int, l wire.LogLine) LogLine {
		return LogLine{Attempt: attempt, Stream: l.Stream, At: l.At, Data: l.Data()}
	})
}

// followAttempts follows a stream over attempts, from after the event last on. row makes a row of
// the data of each event of that name.
func followAttempts[T, Row any](ctx context.Context, c *Client, path string, q url.Values, last string, attempt int, name string, convert func(attempt int, data T) Row) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		attempt, ended := attempt, false
		err := c.stream(ctx, path, q, last, func(ev sseEvent) error {
			switch ev.name {
			case name:
				var data T
				if err := decodeEvent(ev, &data); err != nil {
					return err
				}
				if !yield(convert(attempt, data), nil) {
					ended = true
					return errStop
				}
			case wire.LogAttempt, wire.LogEnd:
				var boundary wire.LogBoundary
				if err := decodeEvent(ev, &boundary); err != nil {
					return err
				}
				attempt = boundary.Attempt
				if ev.name == wire.LogEnd {
					return errStop
				}
			}
			return nil
		})
		if err != nil && !ended {
			var zero Row
			yield(zero, err)
		}
	}
}

func decodeEvent(ev sseEvent, dst any) error {
	if err := json.Unmarshal(ev.data, dst); err != nil {
		return muster.Errorf(muster.Internal, "an event %q of the server is not understood: %w", ev.name, err)
	}
	return nil
}
