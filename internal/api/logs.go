package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/streaming"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/tasklog"
)

func (s *server) logRoutes() {
	stream(s, route{id: "get-logs", method: http.MethodGet, path: prefixed("/tasks/{task}/logs"), tag: "logs", verb: auth.ReadJobs,
		summary: "Show output as text, or as server-sent events (Accept: text/event-stream or follow=true)", answers: "text/plain", events: true}, s.getLogs)
}

// maxTail is the most lines that tail may ask for: it is what bounds the memory
// that finding them takes.
const maxTail = 100_000

type logsInput struct {
	TaskPath
	Attempt  int    `query:"attempt" minimum:"1" maximum:"2147483647" doc:"default: the last one; when following, those after it too"`
	Stream   string `query:"stream" enum:"stdout,stderr,all" default:"all"`
	Offset   int64  `query:"offset" minimum:"0" doc:"begin at this place in the log, which is in the id of each event (ATTEMPT-OFFSET)"`
	Tail     int    `query:"tail" minimum:"1" maximum:"100000" doc:"begin with the last lines"`
	Download bool   `query:"download" doc:"answer with text that browsers save as a file"`
	Follow   string `query:"follow" enum:"true,false" doc:"go on until the task has ended; default for server-sent events: true"`
	Accept   string `header:"Accept" hidden:"true"`
	Last     string `header:"Last-Event-ID" maxLength:"64" doc:"go on after this event; attempt, offset and tail do not count then"`
}

func (s *server) getLogs(w http.ResponseWriter, r *http.Request, in *logsInput) error {
	task, err := s.readTask(r.Context(), in.Task)
	if err != nil {
		return err
	}
	at, err := s.begin(r.Context(), task, in.Attempt, in.Offset, in.Last)
	if err != nil {
		return err
	}
	follow := streams(in.Accept, in.Follow) && !in.Download
	if !follow {
		s.settleLog(r.Context(), task, at)
	}
	if in.Last == "" && in.Tail > 0 {
		if at.offset, err = s.tailOffset(r.Context(), at, in.Stream, in.Tail); err != nil {
			return err
		}
	}
	if follow {
		f := &follower{server: s, place: at, event: outputOf(in.Stream), follow: in.Follow != "false", fixed: in.Attempt > 0}
		return f.serve(w, r)
	}
	if in.Download {
		name := fmt.Sprintf("muster-%s-attempt-%d.log", task.ID, at.attempt)
		w.Header().Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": name}))
	}
	return s.writeLog(w, r, at, in.Stream)
}

// streams says whether a request wants server-sent events.
func streams(accept, follow string) bool {
	return strings.Contains(accept, "text/event-stream") || follow == "true"
}

// begin returns the place where reading begins: after the event last, if there is
// one, else at an offset of an attempt; attempt 0 is the last one.
func (s *server) begin(ctx context.Context, task muster.Task, attempt int, offset int64, last string) (at logPlace, err error) {
	at = logPlace{task: task.ID, attempt: attempt, offset: offset}
	if last != "" {
		if at.attempt, at.offset, err = parsePlace(last); err != nil {
			return logPlace{}, err
		}
	} else if at.attempt == 0 {
		at.attempt = task.Attempt
	}
	if at.attempt > task.Attempt {
		return logPlace{}, noAttempt(task, at.attempt)
	}
	return at, s.checkPlace(ctx, at)
}

// tailPatience is how long a plain read of an ended task's log waits for what its
// report has overtaken.
const tailPatience = 2 * time.Second

// settleLog waits a moment until the log of an ended task has the size that its
// report promised.
func (s *server) settleLog(ctx context.Context, task muster.Task, at logPlace) {
	if at.attempt != task.Attempt || !task.State.Final() {
		return
	}
	id, promised := at.id(), task.LogSize
	ctx, cancel := context.WithTimeout(ctx, tailPatience)
	defer cancel()
	for size, err := s.Logs.Size(ctx, id); err == nil && size < promised; size, err = s.Logs.Size(ctx, id) {
		if s.Logs.Wait(ctx, id, size) != nil {
			return
		}
	}
}

// logPlace is a place in a task's output; attempt 0 is before the first one.
type logPlace struct {
	task    muster.TaskID
	attempt int
	offset  int64
}

func (p logPlace) id() muster.AttemptID { return muster.AttemptID{Task: p.task, N: p.attempt} }

// String returns the form in which events carry it.
func (p logPlace) String() string {
	return strconv.Itoa(p.attempt) + "-" + strconv.FormatInt(p.offset, 10)
}

func parsePlace(id string) (attempt int, offset int64, err error) {
	a, o, _ := strings.Cut(id, "-")
	n, errA := strconv.ParseUint(a, 10, 31)
	m, errO := strconv.ParseUint(o, 10, 62)
	if errors.Join(errA, errO) != nil {
		return 0, 0, muster.Errorf(muster.Invalid, "%q is no id of an event of a log: it has the form ATTEMPT-OFFSET", id)
	}
	return int(n), int64(m), nil
}

// errSeen ends a walk over records that has seen enough.
var errSeen = errors.New("seen enough")

// checkPlace refuses an offset in the middle of a record, which no event's id has.
func (s *server) checkPlace(ctx context.Context, at logPlace) error {
	if at.offset == 0 {
		return nil
	}
	err := s.records(ctx, at, func(tasklog.Record, int64) error { return errSeen })
	switch {
	case errors.Is(err, errSeen):
		return nil
	case muster.CodeOf(err) == muster.Invalid:
		return muster.Errorf(muster.NotFound, "no event of attempt %d has the offset %d: use one from the id of an event", at.attempt, at.offset)
	default:
		return err
	}
}

var streamNames = map[tasklog.Stream]string{tasklog.Stdout: wire.Stdout, tasklog.Stderr: wire.Stderr, tasklog.System: wire.System}

// wanted says whether a record belongs to the stream that was asked for. Samples of
// what the task used belong to none.
func wanted(stream string, r tasklog.Record) bool {
	name, output := streamNames[r.Stream]
	return output && (stream == "all" || stream == name)
}

// outputOf makes events of the output of a stream.
func outputOf(stream string) eventOf {
	return func(r tasklog.Record) (string, any) {
		if !wanted(stream, r) {
			return "", nil
		}
		return wire.LogOutput, wire.NewLogLine(streamNames[r.Stream], muster.NewTime(r.At), r.Data)
	}
}

// records calls each for every whole record from a place on, with the offset
// after it. Its data is valid until each returns.
func (s *server) records(ctx context.Context, at logPlace, each func(r tasklog.Record, after int64) error) error {
	if at.attempt == 0 {
		return nil
	}
	log, err := s.Logs.Open(ctx, at.id(), at.offset)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	dec := tasklog.NewDecoder(log)
	for {
		r, err := dec.Next()
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := each(r, at.offset+dec.Offset()); err != nil {
			return err
		}
	}
}

// tailFirst is how much of a log's end is read first to find its last lines.
const tailFirst = 64 << 10

// tailOffset returns where the last lines of a stream begin, at or after a place. It reads
// the log from further and further before its end until there are enough.
func (s *server) tailOffset(ctx context.Context, at logPlace, stream string, lines int) (int64, error) {
	size, err := s.Logs.Size(ctx, at.id())
	if err != nil {
		return 0, err
	}
	for back := int64(tailFirst); ; back *= 4 {
		from := at
		if start := size - back; start > at.offset {
			if start, err = s.Logs.RecordBefore(ctx, at.id(), start); err != nil {
				return 0, err
			}
			from.offset = max(start, at.offset)
		}
		offset, enough, err := s.lastLines(ctx, from, stream, min(lines, maxTail))
		damaged := muster.CodeOf(err) == muster.Invalid && from != at // or the index is
		if err != nil && !damaged {
			return 0, err
		}
		if enough || from == at {
			return offset, nil
		}
	}
}

// lastLines returns where the last lines begin in what follows a place. It is not enough
// if there are no more than that: the first of them may have begun before the place.
func (s *server) lastLines(ctx context.Context, at logPlace, stream string, lines int) (offset int64, enough bool, err error) {
	starts := make([]int64, lines) // a ring of the last lines' beginnings
	n := 0
	before, open := at.offset, false // open: the line that came last has no end yet
	err = s.records(ctx, at, func(r tasklog.Record, after int64) error {
		if wanted(stream, r) && len(r.Data) > 0 {
			if !open {
				starts[n%len(starts)] = before
				n++
			}
			open = r.Data[len(r.Data)-1] != '\n'
		}
		before = after
		return nil
	})
	if n <= lines {
		return at.offset, false, err
	}
	return starts[n%len(starts)], err == nil, err
}

// writeLog answers with output as text. If it fails in the middle, the
// connection is broken off, so that the answer does not look whole.
func (s *server) writeLog(w http.ResponseWriter, r *http.Request, at logPlace, stream string) error {
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	out := streaming.Writer(w, r)
	begun := false
	err := s.records(r.Context(), at, func(rec tasklog.Record, _ int64) error {
		if !wanted(stream, rec) {
			return nil
		}
		if !begun {
			h.Set("Content-Type", "text/plain; charset=utf-8")
			begun = true
		}
		_, err := out.Write(rec.Data)
		return err
	})
	if err != nil && begun {
		panic(http.ErrAbortHandler)
	}
	if err == nil && !begun {
		h.Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(http.StatusOK)
	}
	return err
}
