package api

import (
	"context"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/logview"
	"github.com/muster-dev/muster/internal/api/rest"
	"github.com/muster-dev/muster/internal/api/streaming"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/tasklog"
)

func (s *server) logRoutes() {
	rest.Stream(s.router, rest.Route{ID: "get-logs", Method: http.MethodGet, Path: rest.Path("/tasks/{task}/logs"), Tag: "logs", Shared: true, Verb: auth.ReadJobs,
		Summary: "Show output as text, or stream it as server-sent events (Accept: text/event-stream or follow=true)", ContentType: "text/plain", Events: true}, s.getLogs)
}

// maxTail is the maximum of tail. It bounds the memory for finding the lines.
const maxTail = 100_000

type logsInput struct {
	rest.TaskPath
	Attempt  int    `query:"attempt" minimum:"1" maximum:"2147483647" doc:"default: the last one; when following, also later ones"`
	Stream   string `query:"stream" enum:"stdout,stderr,all" default:"all"`
	Offset   int64  `query:"offset" minimum:"0" doc:"start at this offset, from the id of an event (ATTEMPT-OFFSET)"`
	Tail     int    `query:"tail" minimum:"1" maximum:"100000" doc:"start with the last lines"`
	Since    string `query:"since" format:"date-time" doc:"only output since this time, by the worker's clock"`
	Download bool   `query:"download" doc:"let browsers save the text as a file"`
	Follow   string `query:"follow" enum:"true,false" doc:"continue until the task has ended; default for server-sent events: true"`
	Accept   string `header:"Accept" hidden:"true"`
	Last     string `header:"Last-Event-ID" maxLength:"64" doc:"resume after this event; attempt, offset and tail are ignored then"`
}

func (s *server) getLogs(w http.ResponseWriter, r *http.Request, in *logsInput) error {
	task, err := s.Store.Task(r.Context(), in.ID())
	if err != nil {
		return err
	}
	pos, err := s.startPosition(r.Context(), task, in.Attempt, in.Offset, in.Last)
	if err != nil {
		return err
	}
	filter, since, err := in.filter()
	if err != nil {
		return err
	}
	follow := wantsEventStream(in.Accept, in.Follow) && !in.Download
	if !follow || in.Follow == "false" {
		s.awaitCompleteLog(r.Context(), task, pos)
	}
	if in.Last == "" && in.Tail > 0 {
		if pos.offset, err = logview.Tail(r.Context(), s.Logs, pos.id(), pos.offset, min(in.Tail, maxTail), inStreamFilter(in.Stream)); err != nil {
			return err
		}
	}
	if in.Last == "" && in.Since != "" && pos.attempt > 0 {
		if pos.offset, err = logview.Since(r.Context(), s.Logs, pos.id(), pos.offset, since, filter); err != nil {
			return err
		}
	}
	if follow {
		f := &follower{server: s, pos: pos, event: outputEvents(filter), follow: in.Follow != "false", singleAttempt: in.Attempt > 0}
		return f.serve(w, r)
	}
	if in.Download {
		name := fmt.Sprintf("muster-%s-attempt-%d.log", task.ID, pos.attempt)
		w.Header().Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": name}))
	}
	return s.writeLog(w, r, pos, filter)
}

// filter returns which records are selected, and since when.
func (in *logsInput) filter() (filter func(tasklog.Record) bool, since time.Time, err error) {
	if in.Since != "" {
		if since, err = time.Parse(time.RFC3339, in.Since); err != nil {
			return nil, since, muster.Errorf(muster.Invalid, "since=%s is not a time: use RFC 3339, such as 2026-11-27T15:04:05Z", in.Since)
		}
		since = since.Truncate(time.Millisecond) // as the times of records
	}
	return func(r tasklog.Record) bool { return inStream(in.Stream, r) && !r.At.Before(since) }, since, nil
}

// wantsEventStream reports whether a request asks for server-sent events.
func wantsEventStream(accept, follow string) bool {
	return strings.Contains(accept, "text/event-stream") || follow == "true"
}

// startPosition returns where to start reading: after the event last, if it is not "",
// else at an offset of an attempt; attempt 0 is the last one.
func (s *server) startPosition(ctx context.Context, task muster.Task, attempt int, offset int64, last string) (pos logPosition, err error) {
	pos = logPosition{task: task.ID, attempt: attempt, offset: offset}
	if last != "" {
		if pos.attempt, pos.offset, err = parseLogPosition(last); err != nil {
			return logPosition{}, err
		}
	} else if pos.attempt == 0 {
		pos.attempt = task.Attempt
	}
	if pos.attempt > task.Attempt {
		return logPosition{}, attemptNotFound(task, pos.attempt)
	}
	if err := s.checkLogPosition(ctx, pos); err != nil || !task.State.Final() {
		return pos, err
	}
	return pos, s.logsDeleted(ctx, pos.id())
}

// A read of a finished task's log waits for the rest of the log, which the report may have overtaken, while it grows: so long without
// a byte, and so long in all.
const completeLogWait, maxCompleteLogWait = 2 * time.Second, time.Minute

// awaitCompleteLog waits until the log of a finished task has the reported size, as long as completeLogWait and maxCompleteLogWait allow.
func (s *server) awaitCompleteLog(ctx context.Context, task muster.Task, pos logPosition) {
	if pos.attempt != task.Attempt || !task.State.Final() {
		return
	}
	id, want := pos.id(), task.LogSize
	ctx, cancel := context.WithTimeout(ctx, maxCompleteLogWait)
	defer cancel()
	for size, err := s.Logs.Size(ctx, id); err == nil && size < want; size, err = s.Logs.Size(ctx, id) {
		waitCtx, cancel := context.WithTimeout(ctx, completeLogWait)
		err := s.Logs.Wait(waitCtx, id, size)
		if cancel(); err != nil {
			return
		}
	}
}

// logPosition is a place in a task's output; attempt 0 is before the first one.
type logPosition struct {
	task    muster.TaskID
	attempt int
	offset  int64
}

func (p logPosition) id() muster.AttemptID { return muster.AttemptID{Task: p.task, N: p.attempt} }

// String returns the form of event ids: ATTEMPT-OFFSET.
func (p logPosition) String() string {
	return strconv.Itoa(p.attempt) + "-" + strconv.FormatInt(p.offset, 10)
}

func parseLogPosition(id string) (attempt int, offset int64, err error) {
	a, o, _ := strings.Cut(id, "-")
	n, errA := strconv.ParseUint(a, 10, 31)
	m, errO := strconv.ParseUint(o, 10, 62)
	if errors.Join(errA, errO) != nil {
		return 0, 0, muster.Errorf(muster.Invalid, "%q is not the id of a log event: use ATTEMPT-OFFSET", id)
	}
	return int(n), int64(m), nil
}

// checkLogPosition rejects an offset in the middle of a record.
func (s *server) checkLogPosition(ctx context.Context, pos logPosition) error {
	if pos.offset == 0 {
		return nil
	}
	err := s.records(ctx, pos, func(tasklog.Record, int64) error { return logview.ErrStop })
	if muster.CodeOf(err) == muster.Invalid {
		return muster.Errorf(muster.NotFound, "no event of attempt %d has the offset %d: use one from the id of an event", pos.attempt, pos.offset)
	}
	return err
}

var streamNames = map[tasklog.Stream]string{tasklog.Stdout: wire.Stdout, tasklog.Stderr: wire.Stderr, tasklog.System: wire.System, tasklog.Gap: wire.System}

// inStream reports whether a record belongs to the requested stream. Usage samples belong
// to none, and the mark of a gap to all.
func inStream(stream string, r tasklog.Record) bool {
	name, isOutput := streamNames[r.Stream]
	return isOutput && (stream == "all" || stream == name || r.Stream == tasklog.Gap)
}

func inStreamFilter(stream string) func(tasklog.Record) bool {
	return func(r tasklog.Record) bool { return inStream(stream, r) }
}

// outputEvents returns an eventFunc for output that filter accepts.
func outputEvents(filter func(tasklog.Record) bool) eventFunc {
	return func(r tasklog.Record) (string, any) {
		if !filter(r) {
			return "", nil
		}
		return wire.LogOutput, wire.NewLogLine(streamNames[r.Stream], muster.NewTime(r.At), r.Data)
	}
}

// records calls visit for every complete record from a place on, with the offset after
// it. The record's data is valid until visit returns.
func (s *server) records(ctx context.Context, pos logPosition, visit func(r tasklog.Record, after int64) error) error {
	if pos.attempt == 0 {
		return nil
	}
	return logview.Walk(ctx, s.Logs, pos.id(), pos.offset, func(r logview.Record, after int64) error { return visit(r.Record, after) })
}

// writeLog answers with output as text. If it fails in the middle, it aborts the
// connection, so that the answer does not look complete.
func (s *server) writeLog(w http.ResponseWriter, r *http.Request, pos logPosition, filter func(tasklog.Record) bool) error {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	out := streaming.NewWriter(w, r)
	started := false
	err := s.records(r.Context(), pos, func(rec tasklog.Record, _ int64) error {
		if !filter(rec) {
			return nil
		}
		if !started {
			h.Set("Content-Type", "text/plain; charset=utf-8")
			started = true
		}
		_, err := out.Write(rec.Data)
		return err
	})
	if err != nil && started {
		panic(http.ErrAbortHandler)
	}
	if err == nil && !started {
		h.Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(http.StatusOK)
	}
	return err
}
