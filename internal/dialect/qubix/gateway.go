package qubix

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dialect"
	"github.com/muster-dev/muster/internal/dialect/fleet"
)

// Name is the system's name in options, tags and labels.
const Name = "qubix"

// How long QUBIX's workers are silent. An idle one sends a heartbeat every 30 to 35 seconds, a busy one nothing.
const (
	idleSilence = 90 * time.Second // the option silence
	busySilence = 6 * time.Hour    // the option busy
	lostAfter   = 5 * time.Minute  // the option lost
)

// reportWait is how long the answer to a final report may take. Workers wait for 10 seconds, and then report a failure.
const reportWait = 8 * time.Second

// System describes QUBIX to the server.
func System() dialect.System {
	return dialect.System{
		Name: Name, Title: "QUBIX", Address: ":3001",
		Options: []dialect.Option{
			{Name: "silence", Usage: "how long an idle worker may be silent before it is unreachable, such as 90s"},
			{Name: "busy", Usage: "how long a worker may be silent while it runs a job, such as 6h"},
			{Name: "lost", Usage: "how long a worker may ask for work without having reported the job that it runs, such as 5m"},
		},
		New: New,
	}
}

// Gateway is a QUBIX backend.
type Gateway struct {
	env      dialect.Env
	listener *dialect.Listener
	fleet    *fleet.Fleet
	book     *book
	secret   []byte // of accounts
	silence  time.Duration
	lost     time.Duration
	started  time.Time
}

// New opens the gateway's port and reads its state. Nothing is served before Run.
func New(ctx context.Context, env dialect.Env) (dialect.Gateway, error) {
	silence, err := duration(env.Config.Options, "silence", idleSilence)
	if err != nil {
		return nil, err
	}
	busy, err := duration(env.Config.Options, "busy", busySilence)
	if err != nil {
		return nil, err
	}
	after, err := duration(env.Config.Options, "lost", lostAfter)
	if err != nil {
		return nil, err
	}
	secret, err := keepSecret(filepath.Join(env.Dir, "accounts.key"))
	if err != nil {
		return nil, err
	}
	l, err := dialect.Listen(ctx, env)
	if err != nil {
		return nil, err
	}
	f, err := fleet.Open(fleet.Config{
		Server: env.Server, Dir: filepath.Join(env.Dir, "fleet"), Log: env.Log, System: Name,
		Silence: silence, Busy: max(busy, silence), Projects: env.Config.Projects(), Kinds: env.Config.Kinds, Price: env.Config.Price,
	})
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return &Gateway{env: env, listener: l, fleet: f, book: newBook(), secret: secret, silence: silence, lost: after, started: time.Now()}, nil
}

// duration reads an option, from a second to a month.
func duration(options map[string]string, name string, otherwise time.Duration) (time.Duration, error) {
	value := options[name]
	if value == "" {
		return otherwise, nil
	}
	d, err := time.ParseDuration(value)
	if err != nil || d < time.Second || d > 31*24*time.Hour {
		return 0, muster.Errorf(muster.Invalid, "--dialect qubix: %s=%s: write a duration from 1s to 744h, such as %s", name, value, otherwise)
	}
	return d, nil
}

// keepSecret returns 32 random bytes, the same ones for each start on the folder.
func keepSecret(path string) ([]byte, error) {
	b, err := os.ReadFile(path)
	if err == nil && len(b) == 32 {
		return b, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, muster.Errorf(muster.Internal, "the key of accounts cannot be read: %w", err)
	}
	b = make([]byte, 32)
	if _, err := rand.Read(b); err != nil {
		return nil, muster.Errorf(muster.Internal, "no random bytes: %w", err)
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		return nil, muster.Errorf(muster.Internal, "the key of accounts cannot be kept: %w", err)
	}
	return b, nil
}

// URL is what people enter as --backend.
func (g *Gateway) URL() string { return g.listener.URL() }

// Ready returns nil: the gateway needs nothing but this process.
func (g *Gateway) Ready() error { return nil }

// Close gives back what a gateway holds that was not run.
func (g *Gateway) Close() error { return errors.Join(g.listener.Close(), g.fleet.Close()) }

// Run serves until ctx ends.
func (g *Gateway) Run(ctx context.Context) error {
	g.listener.Refuse = func(w http.ResponseWriter, _ *http.Request, err error) { refuse(w, err) }
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return g.fleet.Run(ctx) })
	group.Go(func() error { return g.listener.Serve(ctx, g.routes()) })
	return group.Wait()
}

func (g *Gateway) routes() http.Handler {
	mux := http.NewServeMux()
	for pattern, h := range map[string]http.HandlerFunc{
		"GET /health":                            g.health,
		"GET /api/health":                        g.health,
		"POST /api/providers/register":           g.register,
		"POST /api/providers/quick-register":     g.quickRegister,
		"POST /api/providers/{worker}/heartbeat": g.heartbeat,
		"GET /api/providers":                     g.providers,
		"GET /api/providers/{worker}":            g.provider,
		"POST /api/jobs/{job}/progress":          g.progress,
		"POST /api/jobs/{job}/complete":          g.complete,
		"POST /api/jobs/create":                  g.create,
		"POST /api/jobs/estimate":                g.estimate,
		"POST /api/jobs/analyze":                 g.analyze,
		"GET /api/jobs/{job}":                    g.job,
		"GET /api/jobs/{job}/{part}":             g.part,
		"POST /api/jobs/{job}/cancel":            g.cancel,
		"POST /api/auth/register":                g.signUp,
		"POST /api/auth/login":                   g.signIn,
		"GET /api/users/{address}":               g.user,
	} {
		mux.HandleFunc(pattern, h)
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		dialect.WriteJSON(w, http.StatusNotFound, problem{Error: "Muster's QUBIX backend has no " + r.Method + " " + clean(r.URL.Path, maxText)})
	})
	return mux
}

// part serves what lies below a job, and the two lists whose paths look like it.
func (g *Gateway) part(w http.ResponseWriter, r *http.Request) {
	id, part := r.PathValue("job"), r.PathValue("part")
	parts := map[string]http.HandlerFunc{"status": g.status, "monitor": g.monitor, "metrics": g.metrics, "logs": g.logs}
	switch h := parts[part]; {
	case id == "pending":
		g.pending(w, r, part)
	case id == "user":
		g.userJobs(w, r, part)
	case h != nil:
		h(w, r)
	default:
		refuse(w, muster.Errorf(muster.NotFound, "a job has status, monitor, metrics and logs, and no %.80q", part))
	}
}

// problem is an answer that says what is wrong.
type problem struct {
	Success bool   `json:"success"` // false
	Error   string `json:"error"`
	Details any    `json:"details,omitempty"`
}

// refuse answers with an error as QUBIX's backend does.
func refuse(w http.ResponseWriter, err error) {
	p := problem{Error: err.Error()}
	if e, ok := errors.AsType[*muster.Error](err); ok && len(e.Fields) > 0 {
		p.Details = e.Fields
	}
	dialect.WriteJSON(w, dialect.Status(err), p)
}

func (g *Gateway) health(w http.ResponseWriter, _ *http.Request) {
	dialect.WriteJSON(w, http.StatusOK, map[string]any{
		"status": "ok", "timestamp": muster.NewTime(time.Now()), "uptime": time.Since(g.started).Seconds(), "version": cmp.Or(g.env.Version, "muster"),
	})
}

// log is the gateway's log with a worker's id.
func (g *Gateway) log(worker string) *slog.Logger {
	return g.env.Log.With(slog.String("worker", worker))
}
