package engine

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/link"
	"github.com/muster-dev/muster/internal/sched"
)

// challengeTimeout is how long a session has to prove that its process is alive when its worker opens another one. A worker whose connection broke,
// or that was restarted, does not: it closes a connection before it opens the next one.
const challengeTimeout = 3 * time.Second

// challenge asks the session of a worker that opens another one whether it is alive, and then the worker that opens it. It ends both if both are:
// two processes have the worker's identity. If only the older session is, the hello was late: the worker has connected again meanwhile, and the error
// is Unavailable. Otherwise it returns the older session, or nil, which the one of h may replace.
func (e *Engine) challenge(ctx context.Context, h *link.Hello) (silent *session, err error) {
	old := e.session(h.Worker)
	if old == nil {
		return nil, nil
	}
	select {
	case <-old.pongs: // of an earlier challenge
	default:
	}
	old.post(&link.ToWorker{Ping: true})
	timeout := time.NewTimer(challengeTimeout)
	defer timeout.Stop()
	select {
	case <-old.pongs:
		alive, cancel := context.WithTimeout(ctx, challengeTimeout)
		defer cancel()
		if err := h.Alive(alive); err != nil {
			return nil, err
		}
		return nil, e.quarantine(ctx, h, old)
	case <-old.closed:
	case <-timeout.C:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return old, nil
}

// mayReplace reports whether the session of h may replace the current one of its worker, after a challenge of silent.
func (e *Engine) mayReplace(h *link.Hello, silent *session) bool {
	current := e.session(h.Worker)
	return current == nil || current == silent
}

// quarantine refuses a worker's identity from now on and ends both sessions. It returns the error for them.
func (e *Engine) quarantine(ctx context.Context, h *link.Hello, old *session) error {
	ctx = context.WithoutCancel(ctx) // which ends with the identity
	why := "its identity was used by two processes at once, from " + cmp.Or(old.remoteIP, "this server") + " and " + cmp.Or(h.RemoteIP, "this server")
	e.cfg.Log.Error("a worker's identity was copied, ending both sessions", slog.String("worker", string(h.Worker)), slog.String("name", h.Name), slog.String("why", why))
	final := muster.Errorf(muster.Forbidden, "worker %s is quarantined: %s; muster workers reset %s makes it a new identity", h.Name, why, h.Worker)
	if e.cfg.OnCopy != nil { // first, so that neither may open another session when this one ends
		if err := e.cfg.OnCopy(ctx, h.Worker, why); err != nil {
			e.cfg.Log.Error("cannot store that a worker is quarantined: it is until the server restarts", slog.String("worker", string(h.Worker)), slog.Any("error", err))
		}
	}
	if err := e.do(ctx, false, func(st *sched.State, now muster.Time, _ *batch) error {
		return st.Apply(now, sched.Quarantine{Worker: h.Worker, Reason: why})
	}); err != nil {
		e.cfg.Log.Error("cannot show that a worker is quarantined", slog.String("worker", string(h.Worker)), slog.Any("error", err))
	}
	old.end(final.Code, final.Message)
	return final
}

// pong records the answer to a challenge.
func (s *session) pong() {
	select {
	case s.pongs <- struct{}{}:
	default: // there is one
	}
}
