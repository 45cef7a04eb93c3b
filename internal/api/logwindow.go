package api

import (
	"context"
	"net/http"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/logview"
	"github.com/muster-dev/muster/internal/api/rest"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/tasklog"
)

const (
	// maxSearchTime and maxSearchBytes limit one search.
	maxSearchTime  = 2 * time.Second
	maxSearchBytes = 256 << 20
)

func (s *server) logWindowRoutes() {
	rest.Handle(s.router, rest.Route{ID: "get-log-window", Method: http.MethodGet, Path: rest.Path("/tasks/{task}/logs/window"), Tag: "logs", Shared: true, Verb: auth.ReadJobs,
		Summary: "Show a part of a log: the records from an offset on, or those before it"}, s.logWindow)
	rest.Handle(s.router, rest.Route{ID: "search-logs", Method: http.MethodGet, Path: rest.Path("/tasks/{task}/logs/search"), Tag: "logs", Shared: true, Verb: auth.ReadJobs,
		Summary: "Search a log, for at most 2 seconds or 256 MiB per request"}, s.searchLog)
}

// LogPositionInput is a place in the log of an attempt.
type LogPositionInput struct {
	rest.TaskPath
	Attempt   int    `query:"attempt" minimum:"1" maximum:"2147483647" doc:"default: the last one"`
	Offset    int64  `query:"offset" minimum:"-1" default:"-1" doc:"any place in the log; it is moved back to the beginning of a record. -1 means the end, or the beginning if the direction is forward"`
	Direction string `query:"direction" enum:"forward,backward" default:"forward"`
	Stream    string `query:"stream" enum:"stdout,stderr,all" default:"all"`
}

type logWindowInput struct {
	LogPositionInput
	Bytes int `query:"bytes" minimum:"1" maximum:"1048576" default:"65536" doc:"maximum bytes of output; a longer record is returned alone"`
}

type searchLogInput struct {
	LogPositionInput
	Query  string `query:"q" maxLength:"1000" doc:"text to find"`
	Regex  bool   `query:"regex" doc:"q is a regular expression in the syntax of RE2"`
	Case   bool   `query:"case" doc:"match case"`
	Errors bool   `query:"errors" doc:"find error lines of programs, in place of q"`
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"100"`
}

// logQuery returns the task and the query of a log. Attempt 0 has no log.
func (s *server) logQuery(ctx context.Context, in *LogPositionInput) (muster.Task, logview.Query, error) {
	task, err := s.Store.Task(ctx, in.ID())
	if err != nil {
		return task, logview.Query{}, err
	}
	pos, err := s.startPosition(ctx, task, in.Attempt, 0, "")
	q := logview.Query{
		Attempt: pos.id(), Offset: in.Offset, Backward: in.Direction == "backward",
		Filter: func(r tasklog.Record) bool { return inStream(in.Stream, r) },
	}
	if q.Offset < 0 && !q.Backward {
		q.Offset = 0
	}
	return task, q, err
}

func (s *server) logWindow(ctx context.Context, in *logWindowInput) (*rest.Response[wire.LogWindow], error) {
	task, q, err := s.logQuery(ctx, &in.LogPositionInput)
	if err != nil {
		return nil, err
	}
	if q.Attempt.N == 0 {
		return rest.Respond(wire.LogWindow{Done: task.State.Final(), Records: []wire.LogRecord{}}), nil
	}
	complete, err := s.logComplete(ctx, task, q.Attempt.N)
	if err != nil {
		return nil, err
	}
	w, err := logview.Read(ctx, s.Logs, q, in.Bytes)
	if err != nil {
		return nil, err
	}
	window := wire.LogWindow{Attempt: q.Attempt.N, Size: w.Size, First: w.First, Last: w.Last, Done: w.AtEnd && complete(w.Size), Records: make([]wire.LogRecord, len(w.Records))}
	for i, r := range w.Records {
		window.Records[i] = wire.LogRecord{Offset: r.Offset, LogLine: wire.NewLogLine(streamNames[r.Stream], muster.NewTime(r.At), r.Data)}
	}
	return rest.Respond(window), nil
}

// logComplete returns a function that reports whether the log of an attempt is complete at a size. Call it before
// the log is read.
func (s *server) logComplete(ctx context.Context, task muster.Task, attempt int) (func(size int64) bool, error) {
	if attempt == task.Attempt && task.State.HoldsResources() {
		return func(int64) bool { return false }, nil
	}
	attempts, err := s.Store.Attempts(ctx, task.ID)
	if err != nil {
		return nil, err
	}
	a, _ := findAttempt(attempts, attempt)
	ended, lost := attemptEnded(&a)
	return func(size int64) bool { return ended && (lost || size >= a.LogSize) }, nil
}

func (s *server) searchLog(ctx context.Context, in *searchLogInput) (*rest.Response[wire.LogMatches], error) {
	match, err := in.matcher()
	if err != nil {
		return nil, err
	}
	_, q, err := s.logQuery(ctx, &in.LogPositionInput)
	if err != nil {
		return nil, err
	}
	if q.Attempt.N == 0 {
		return rest.Respond(wire.LogMatches{Done: true, Matches: []wire.LogMatch{}}), nil
	}
	release, err := s.searchLimiter.acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	result, err := logview.Search(ctx, s.Logs, q, match, logview.Limits{Matches: in.Limit, Bytes: maxSearchBytes, Time: maxSearchTime})
	if err != nil {
		return nil, err
	}
	matches := wire.LogMatches{Attempt: q.Attempt.N, Matches: make([]wire.LogMatch, len(result.Matches)), ScannedTo: result.ScannedTo, Done: result.Done}
	for i, m := range result.Matches {
		matches.Matches[i] = wire.LogMatch{Offset: m.Offset, At: muster.NewTime(m.At), Stream: streamNames[m.Stream], Text: m.Text}
	}
	return rest.Respond(matches), nil
}

func (in *searchLogInput) matcher() (logview.Matcher, error) {
	switch {
	case in.Errors && in.Query != "":
		return nil, muster.Errorf(muster.Invalid, "q and errors exclude each other: set only one of them")
	case in.Errors:
		return logview.Errors(), nil
	case in.Query == "":
		return nil, muster.Errorf(muster.Invalid, "nothing to search for: set q=TEXT or errors=true")
	case in.Regex:
		return logview.Pattern(in.Query, in.Case)
	default:
		return logview.Text(in.Query, in.Case), nil
	}
}
