package qubix

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"path/filepath"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dialect"
	"github.com/muster-dev/muster/internal/dialect/fleet"
	"github.com/muster-dev/muster/internal/dialect/lenient"
)

// Name is the system's name in options, tags and labels.
const Name = "qubix"

// The defaults of options. An idle worker of QUBIX sends a heartbeat every 30 to 35 seconds, a busy one none.
const (
	defaultIdleTimeout = 90 * time.Second // silence
	defaultBusyTimeout = 6 * time.Hour    // busy
	defaultLostTimeout = 5 * time.Minute  // lost
)

const finishTimeout = 8 * time.Second // for a final report: workers wait for 10 seconds and then report a failure

// System describes QUBIX to the server.
func System() dialect.System {
	return dialect.System{
		Name: Name, Title: "QUBIX", Address: ":3001",
		Options: []dialect.Option{
			{Name: "silence", Usage: "time without contact after which an idle worker is unreachable (default: 90s)"},
			{Name: "busy", Usage: "time without contact after which a worker that runs a job is unreachable (default: 6h)"},
			{Name: "lost", Usage: "time after which a job is lost if its worker asks for work without reporting it (default: 5m)"},
		},
		New: New,
	}
}

// Gateway is a QUBIX backend.
type Gateway struct {
	fleet.Gateway

	tracker     *jobTracker
	secret      []byte // of accounts
	idleTimeout time.Duration
	lostTimeout time.Duration
	started     time.Time
}

// New opens the gateway's port and reads its state.
func New(ctx context.Context, deps dialect.Deps) (dialect.Gateway, error) {
	const most = 31 * 24 * time.Hour
	o := deps.Config.ReadOptions()
	g := &Gateway{
		tracker: newJobTracker(), started: time.Now(),
		idleTimeout: o.Duration("silence", defaultIdleTimeout, time.Second, most), lostTimeout: o.Duration("lost", defaultLostTimeout, time.Second, most),
	}
	busyTimeout := max(o.Duration("busy", defaultBusyTimeout, time.Second, most), g.idleTimeout)
	err := o.Err()
	if err != nil {
		return nil, err
	}
	if g.secret, err = dialect.Secret(filepath.Join(deps.Dir, "accounts.key")); err != nil {
		return nil, err
	}
	g.Gateway, err = fleet.OpenGateway(ctx, deps, fleet.Config{System: Name, SilenceTimeout: g.idleTimeout, BusyTimeout: busyTimeout})
	return g, err
}

// Run serves until ctx ends.
func (g *Gateway) Run(ctx context.Context) error {
	g.Listener.WriteError = writeError
	return g.Serve(ctx, dialect.Routes(g.handlers(), writeError, func(w http.ResponseWriter, r *http.Request) {
		writeError(w, r, muster.Errorf(muster.NotFound, "Muster's QUBIX backend has no %s %s", r.Method, lenient.Text(r.URL.Path, maxText)))
	}))
}

// handlers returns what serves each route.
func (g *Gateway) handlers() map[string]dialect.Handler {
	return map[string]dialect.Handler{
		"GET /health":                            g.health,
		"GET /api/health":                        g.health,
		"POST /api/providers/register":           dialect.WithBody(maxSmallBody, g.register),
		"POST /api/providers/quick-register":     dialect.WithBody(maxSmallBody, g.quickRegister),
		"POST /api/providers/{worker}/heartbeat": g.heartbeat,
		"GET /api/providers":                     g.providers,
		"GET /api/providers/{worker}":            g.provider,
		"POST /api/jobs/{job}/progress":          dialect.WithBody(maxReportBody, g.progress),
		"POST /api/jobs/{job}/complete":          dialect.WithBody(maxReportBody, g.complete),
		"POST /api/jobs/create":                  dialect.WithBody(maxReportBody, g.create),
		"POST /api/jobs/estimate":                g.estimates(showEstimate),
		"POST /api/jobs/analyze":                 g.estimates(showAnalysis),
		"GET /api/jobs/{job}":                    g.withJob(showJob),
		"GET /api/jobs/{job}/{part}":             g.jobSubpath,
		"POST /api/jobs/{job}/cancel":            g.withJob(cancelJob),
		"POST /api/auth/register":                g.signUp(http.StatusCreated),
		"POST /api/auth/login":                   g.signUp(http.StatusOK),
		"GET /api/users/{address}":               g.user,
	}
}

// jobSubpath serves the paths below a job, and the lists /api/jobs/pending/{worker} and /api/jobs/user/{address}.
func (g *Gateway) jobSubpath(w http.ResponseWriter, r *http.Request) error {
	id, part := r.PathValue("job"), r.PathValue("part")
	parts := map[string]jobPart{"status": showStatus, "monitor": monitor, "metrics": showMetrics, "logs": showLog}
	switch show := parts[part]; {
	case id == "pending":
		return g.pending(w, r, part)
	case id == "user":
		return g.userJobs(w, r, part)
	case show != nil:
		return g.withJob(show)(w, r)
	default:
		return muster.Errorf(muster.NotFound, "unknown part of a job %.80q: use status, monitor, metrics or logs", part)
	}
}

type errorBody struct {
	Success bool   `json:"success"` // false
	Error   string `json:"error"`
	Details any    `json:"details,omitempty"`
}

// writeError answers with an error as QUBIX's backend does.
func writeError(w http.ResponseWriter, _ *http.Request, err error) {
	body := errorBody{Error: err.Error()}
	if e, ok := errors.AsType[*muster.Error](err); ok && len(e.Fields) > 0 {
		body.Details = e.Fields
	}
	dialect.WriteJSON(w, dialect.HTTPStatus(w, err), body)
}

func (g *Gateway) health(w http.ResponseWriter, _ *http.Request) error {
	return dialect.Reply(w, map[string]any{
		"status": "ok", "timestamp": muster.NewTime(time.Now()), "uptime": time.Since(g.started).Seconds(), "version": cmp.Or(g.Deps.Version, "muster"),
	})
}
