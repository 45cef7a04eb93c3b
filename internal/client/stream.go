package client

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/wire"
)

const (
	// maxEvent is the maximum size of one event, in bytes.
	maxEvent = 16 << 20
	// silenceTimeout is the time without any data after which a stream's connection
	// counts as broken. The server sends a keep-alive every 15 s.
	silenceTimeout = 45 * time.Second
)

// sseEvent is one server-sent event. An event without data is a keep-alive; a connection begins with one. Its id, if any, is
// a position from which to resume, like that of other events.
type sseEvent struct {
	id, name string
	data     []byte
}

var errStop = errors.New("stop")

// stream follows an event stream until handle returns an error, ctx ends, the server
// refuses, or the server is unreachable for StreamRetryTimeout (RetryTimeout before the first
// connection, ConnectTimeout before any answer). After a broken connection it resumes after the last event with an id that
// handle accepted.
func (c *Client) stream(ctx context.Context, path string, query url.Values, last string, handle func(sseEvent) error) error {
	r := c.newRetrier(c.opts.RetryTimeout)
	for {
		before := last
		received, err := c.connect(ctx, path, query, &last, handle)
		if received {
			r.deadline = time.Now().Add(c.opts.StreamRetryTimeout)
		}
		if last != before {
			r.Reset()
		}
		switch {
		case errors.Is(err, errStop):
			return nil
		case muster.CodeOf(err) != muster.Unavailable, !r.wait(ctx, err):
			return cmp.Or(ctx.Err(), err)
		}
	}
}

// connect follows one connection of a stream, and reports whether it received any data.
// The error is Unavailable if the caller should connect again.
func (c *Client) connect(ctx context.Context, path string, query url.Values, last *string, handle func(sseEvent) error) (received bool, err error) {
	ctx, resetWatchdog, stop := withWatchdog(ctx, silenceTimeout)
	defer stop()
	header := http.Header{"Accept": {"text/event-stream"}}
	if *last != "" {
		header.Set(wire.HeaderLastEvent, *last)
	}
	resp, err := c.send(ctx, http.MethodGet, path, query, header, nil)
	if err != nil {
		return false, err
	}
	defer func() { _ = resp.Body.Close() }()
	events := newEventReader(resp.Body, func() { received = true; resetWatchdog() })
	for {
		ev, err := events.next()
		if err != nil {
			return received, muster.Errorf(muster.Unavailable, "the connection to %s broke: %w", c.base, err)
		}
		if err := handle(ev); err != nil {
			return received, err
		}
		if ev.id != "" {
			*last = ev.id
		}
	}
}

// withWatchdog returns a context that is cancelled if resetWatchdog is not called for d.
// stop releases it.
func withWatchdog(ctx context.Context, d time.Duration) (_ context.Context, resetWatchdog, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	watchdog := time.AfterFunc(d, func() { cancel(errors.New("the server sent nothing for too long")) })
	return ctx, func() { watchdog.Reset(d) }, func() { watchdog.Stop(); cancel(nil) }
}

// eventReader reads server-sent events as the HTML standard defines them.
type eventReader struct {
	lines         *bufio.Scanner
	resetWatchdog func() // called for every line
}

func newEventReader(r io.Reader, resetWatchdog func()) *eventReader {
	s := bufio.NewScanner(r)
	s.Buffer(make([]byte, 0, 64<<10), maxEvent)
	return &eventReader{lines: s, resetWatchdog: resetWatchdog}
}

// next returns the next event. io.EOF means that the stream ended between two events.
func (r *eventReader) next() (sseEvent, error) {
	var ev sseEvent
	started := false
	for r.lines.Scan() {
		r.resetWatchdog()
		line := r.lines.Text()
		if line == "" {
			if !started {
				continue
			}
			if ev.data == nil {
				return sseEvent{id: ev.id}, nil
			}
			ev.data = ev.data[:len(ev.data)-1] // the last line end
			return ev, nil
		}
		started = true
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "id":
			ev.id = value
		case "event":
			ev.name = value
		case "data":
			ev.data = append(append(ev.data, value...), '\n')
		}
	}
	if err := r.lines.Err(); err != nil {
		return sseEvent{}, err
	}
	if started {
		return sseEvent{}, io.ErrUnexpectedEOF
	}
	return sseEvent{}, io.EOF
}

func decodeEvent(ev sseEvent, dst any) error {
	if err := json.Unmarshal(ev.data, dst); err != nil {
		return muster.Errorf(muster.Internal, "the server sent an invalid %q event: %w", ev.name, err)
	}
	return nil
}

// EventQuery selects events.
type EventQuery struct {
	Job   muster.JobID       // only of this job and its tasks; 0 means all
	Types []muster.EventType // any if empty; a resync is always included
	Last  string             // resume after this event ("EPOCH-SEQ"); "" means from now on
	// KeepAlive, if not nil, is called for each keep-alive of the server; the first one comes as soon as a connection is open. To
	// resume there, set Last to last, unless that is "".
	KeepAlive func(last string)
}

// Events streams events until ctx ends. An event of type muster.EventResync means that
// events were missed and the state must be read again. The stream begins with one as soon
// as the server listens, unless the server knows q.Last. An error ends the sequence.
func (c *Client) Events(ctx context.Context, q EventQuery) iter.Seq2[muster.Event, error] {
	v := url.Values{}
	if q.Job != 0 {
		v.Set("job", q.Job.String())
	}
	for _, t := range q.Types {
		v.Add("type", string(t))
	}
	return func(yield func(muster.Event, error) bool) {
		err := c.stream(ctx, "/events", v, q.Last, func(ev sseEvent) error {
			if ev.data == nil {
				if q.KeepAlive != nil {
					q.KeepAlive(ev.id)
				}
				return nil
			}
			var e muster.Event
			if err := decodeEvent(ev, &e); err != nil {
				return err
			}
			if !yield(e, nil) {
				return errStop
			}
			return nil
		})
		if err != nil {
			yield(muster.Event{}, err)
		}
	}
}

// Wait waits until a job has ended and returns it.
func (c *Client) Wait(ctx context.Context, id muster.JobID) (muster.Job, error) {
	for _, err := range c.Events(ctx, EventQuery{Job: id, Types: []muster.EventType{muster.EventJob}}) {
		if err != nil {
			return muster.Job{}, err
		}
		job, err := c.Job(ctx, id)
		if err != nil || job.State.Final() {
			return job, err
		}
	}
	return muster.Job{}, ctx.Err()
}

// The streams of a log.
const (
	Stdout = wire.Stdout
	Stderr = wire.Stderr
	System = wire.System // messages from Muster itself
)

// LogOptions select output. The zero value selects all output of the last attempt so far.
type LogOptions struct {
	Attempt int    // 0 means the last one
	Stream  string // Stdout or Stderr; "" means all
	Tail    int    // start with this number of last lines; 0 means all
	Follow  bool   // until the task has ended, including later attempts

	Since muster.Time // only output since then, by the worker's clock; 0 means all
	After string      // continue after the line with this ID, also in later attempts; "" means the beginning

	// OnRetry, if not nil, is called for each attempt that has ended and is followed by another one, which may not have started yet. It is
	// called while the sequence advances.
	OnRetry func(attempt int)
}

// LogLine is one piece of output: a whole line with its end, or a part of a
// long or unfinished one.
type LogLine struct {
	Attempt int
	Stream  string
	At      muster.Time
	Data    []byte
	ID      string // for LogOptions.After
}

// Logs reads a task's output in order. It resumes after broken connections and server
// restarts without losing or repeating lines. An error ends the sequence.
func (c *Client) Logs(ctx context.Context, id muster.TaskID, o LogOptions) iter.Seq2[LogLine, error] {
	q := url.Values{"follow": {strconv.FormatBool(o.Follow)}}
	set(q, "stream", o.Stream)
	setInt(q, "attempt", o.Attempt)
	setInt(q, "tail", o.Tail)
	if o.Since != 0 {
		q.Set("since", o.Since.Std().UTC().Format(time.RFC3339Nano))
	}
	return followAttempts(ctx, c, taskPath(id)+"/logs", q, o.After, o.Attempt, o.OnRetry, wire.LogOutput, func(attempt int, id string, l wire.LogLine) LogLine {
		return LogLine{Attempt: attempt, Stream: l.Stream, At: l.At, Data: l.Data(), ID: id}
	})
}

// Sample is a usage sample of an attempt.
type Sample struct {
	Attempt int `json:"attempt"`
	muster.Sample
}

// Samples streams the samples after s until the task has ended, including later attempts
// unless singleAttempt is set. It resumes after broken connections and server restarts
// without losing or repeating samples. An error ends the sequence.
func (c *Client) Samples(ctx context.Context, s Series, singleAttempt bool) iter.Seq2[Sample, error] {
	q := url.Values{"follow": {"true"}}
	if singleAttempt {
		setInt(q, "attempt", s.Attempt)
	}
	return followAttempts(ctx, c, taskPath(s.Task)+"/usage", q, s.Next, s.Attempt, nil, wire.LogSample, func(attempt int, _ string, data muster.Sample) Sample {
		return Sample{Attempt: attempt, Sample: data}
	})
}

// followAttempts follows a stream over attempts, from after the event last on. convert makes a
// row from the data of each event with the given name. onRetry, if not nil, is called once for each attempt that another one follows.
func followAttempts[T, Row any](ctx context.Context, c *Client, path string, q url.Values, last string, attempt int, onRetry func(attempt int), name string, convert func(attempt int, id string, data T) Row) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		attempt, retried := attempt, 0
		retry := func(ended int) {
			if onRetry != nil && ended > retried {
				retried = ended
				onRetry(ended)
			}
		}
		err := c.stream(ctx, path, q, last, func(ev sseEvent) error {
			switch ev.name {
			case name:
				var data T
				if err := decodeEvent(ev, &data); err != nil {
					return err
				}
				if !yield(convert(attempt, ev.id, data), nil) {
					return errStop
				}
			case wire.LogAttempt, wire.LogRetry, wire.LogEnd:
				var boundary wire.LogBoundary
				if err := decodeEvent(ev, &boundary); err != nil {
					return err
				}
				if ev.name == wire.LogRetry {
					retry(boundary.Attempt)
				} else if boundary.Attempt > attempt && attempt > 0 {
					retry(attempt)
				}
				attempt = boundary.Attempt
				if ev.name == wire.LogEnd {
					return errStop
				}
			}
			return nil
		})
		if err != nil {
			var zero Row
			yield(zero, err)
		}
	}
}
