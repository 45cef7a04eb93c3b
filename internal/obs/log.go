package obs

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"go.opentelemetry.io/otel/trace"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/traceparent"
)

// AttemptTraces maps the attempts that a worker executes to their traces, for its log.
type AttemptTraces struct {
	mu   sync.RWMutex
	jobs map[muster.AttemptID]string // uid
}

// NewAttemptTraces returns an empty AttemptTraces.
func NewAttemptTraces() *AttemptTraces { return &AttemptTraces{jobs: map[muster.AttemptID]string{}} }

// Add adds an attempt of the job with a uid, until remove is called.
func (a *AttemptTraces) Add(id muster.AttemptID, uid string) (remove func()) {
	if a == nil || uid == "" {
		return func() {}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.jobs[id] = uid
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.jobs, id)
	}
}

// lookup returns the trace of an attempt as a log names it, "" if there is none.
func (a *AttemptTraces) lookup(attempt string) string {
	if a == nil || attempt == "" {
		return ""
	}
	id, err := muster.ParseAttemptID(attempt)
	if err != nil {
		return ""
	}
	a.mu.RLock()
	defer a.mu.RUnlock()
	if uid := a.jobs[id]; uid != "" {
		return traceparent.TraceText(uid)
	}
	return ""
}

// Logger returns a logger that adds attributes: the job, the task and, if attempts (which may be nil) has it, the
// trace_id to lines with an attempt, and the trace_id to lines in the context of a request with a traceparent.
func Logger(log *slog.Logger, attempts *AttemptTraces) *slog.Logger {
	return slog.New(logHandler{Handler: log.Handler(), attempts: attempts})
}

const attemptKey = "attempt"

type logHandler struct {
	slog.Handler

	attempts *AttemptTraces
	attempt  string // from WithAttrs, or ""
}

// Handle implements slog.Handler.
func (h logHandler) Handle(ctx context.Context, r slog.Record) error {
	attempt := h.attempt
	traced := false
	r.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case attemptKey:
			attempt = a.Value.String()
		case "trace_id":
			traced = true
		}
		return true
	})
	if attempt != h.attempt {
		r.AddAttrs(parentAttrs(attempt)...)
	}
	if id := h.traceID(ctx, attempt); id != "" && !traced {
		r.AddAttrs(slog.String("trace_id", id))
	}
	return h.Handler.Handle(ctx, r)
}

func (h logHandler) traceID(ctx context.Context, attempt string) string {
	if id := h.attempts.lookup(attempt); id != "" {
		return id
	}
	if p, ok := traceparent.FromContext(ctx); ok {
		return trace.TraceID(p.Trace).String()
	}
	return ""
}

// WithAttrs implements slog.Handler.
func (h logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	if i := slices.IndexFunc(attrs, func(a slog.Attr) bool { return a.Key == attemptKey }); i >= 0 {
		h.attempt = attrs[i].Value.String()
		attrs = append(slices.Clone(attrs), parentAttrs(h.attempt)...)
	}
	h.Handler = h.Handler.WithAttrs(attrs)
	return h
}

// WithGroup implements slog.Handler.
func (h logHandler) WithGroup(name string) slog.Handler {
	h.Handler = h.Handler.WithGroup(name)
	return h
}

// parentAttrs returns the task and the job of an attempt, such as 17.3#2.
func parentAttrs(attempt string) []slog.Attr {
	task, _, ok := strings.Cut(attempt, "#")
	job, _, inJob := strings.Cut(task, ".")
	if !ok || !inJob {
		return nil
	}
	return []slog.Attr{slog.String("task", task), slog.String("job", job)}
}
