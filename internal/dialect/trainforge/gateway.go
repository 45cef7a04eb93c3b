package trainforge

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dialect"
	"github.com/muster-dev/muster/internal/dialect/fleet"
	"github.com/muster-dev/muster/internal/dialect/lenient"
	"github.com/muster-dev/muster/internal/lru"
	"github.com/muster-dev/muster/internal/wake"
)

// Name is the system's name in options, tags and labels.
const Name = "trainforge"

// System describes TrainForge to the server.
func System() dialect.System {
	return dialect.System{
		Name: Name, Title: "TrainForge", Address: ":3000",
		Options: []dialect.Option{
			{Name: "projects", Usage: "folder of projects that is shared with workers that do not download them"},
			{Name: "cpus", Usage: "cores of workers that do not report them (default: 2)"},
			{Name: "memory", Usage: "memory of workers that do not report it (default: 8GiB)"},
		},
		New: New,
	}
}

// timeouts is how long the gateway waits for what. Tests change it.
type timeouts struct {
	scanInterval  time.Duration // between two looks at tasks
	silence       time.Duration // of an idle worker, until it is unreachable
	nodeStart     time.Duration // from the first offer to worker A until it has begun
	claimStart    time.Duration // from the first offer to another worker until it has begun
	runnerSilence time.Duration // of a task whose runner was heard of
	setup         time.Duration // of a task before its runner is heard of: packages are installed then
	reportGrace   time.Duration // from the runner's last word until its worker has reported: then the report is taken for lost
	claimHold     time.Duration // for which a claim waits that has nothing to give: the worker for Colab asks again at once
	ticketTTL     time.Duration // for which an offer in a pending list may be claimed
	report        time.Duration // for which a report to the Muster server may take
}

func defaultTimeouts() timeouts {
	return timeouts{
		scanInterval: time.Second, silence: 2 * time.Minute, nodeStart: 20 * time.Second, claimStart: 2 * time.Minute, runnerSilence: 4 * time.Minute,
		setup: 45 * time.Minute, claimHold: 5 * time.Second, reportGrace: time.Minute, ticketTTL: 10 * time.Minute, report: 10 * time.Minute,
	}
}

// Gateway is a TrainForge API server.
type Gateway struct {
	fleet.Gateway

	timeouts         timeouts
	sharedDir        string // the folder with projects for workers A and B
	sharedConfigured bool   // shared is an option, and not this machine's default
	cpus             float64
	memory           muster.Size
	started          time.Time
	wake             chan struct{} // a token has the tasks looked at

	droppedJobs  *lru.Cache[string, int]       // jobs in a row that a worker did not begin, by its id
	lastPoll     *lru.Cache[string, time.Time] // when a worker B last asked, by its id
	writeFailing atomic.Bool                   // projects cannot be written

	mu           sync.Mutex
	states       map[string]*taskState // by Task.EventID
	tickets      map[string]time.Time
	boundTickets map[string]string // ticket to Task.EventID
}

// New opens the gateway's port and reads its state. Nothing is served before Run.
func New(ctx context.Context, deps dialect.Deps) (dialect.Gateway, error) {
	return openGateway(ctx, deps, defaultTimeouts())
}

func openGateway(ctx context.Context, deps dialect.Deps, waits timeouts) (*Gateway, error) {
	g := &Gateway{
		timeouts: waits, cpus: 2, memory: 8 << 30, started: time.Now(), wake: wake.New(),
		droppedJobs: lru.NewCounted[string, int](maxTickets), lastPoll: lru.NewCounted[string, time.Time](maxTickets),
		states: map[string]*taskState{}, tickets: map[string]time.Time{}, boundTickets: map[string]string{},
	}
	g.Deps = deps
	if err := g.parseOptions(); err != nil {
		return nil, err
	}
	_ = os.RemoveAll(g.uploadsDir()) // of uploads that broke off; it is tried again at the next start
	for _, dir := range []string{g.tasksDir(), g.uploadsDir(), g.zipsDir()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, muster.Errorf(muster.Internal, "--dialect trainforge: %w", err)
		}
	}
	var err error
	g.Gateway, err = fleet.OpenGateway(ctx, deps, fleet.Config{
		System: Name, SilenceTimeout: waits.silence, BusyTimeout: max(waits.setup, waits.runnerSilence) + waits.silence,
		Lacks: []string{
			muster.FeatureContainer, muster.FeatureCheckpoint, muster.FeatureLauncher, muster.FeatureNetwork, muster.FeatureURL, muster.FeatureCancel,
		},
	})
	if err != nil {
		return nil, err
	}
	g.restoreStates()
	return g, nil
}

func (g *Gateway) parseOptions() error {
	o, values := g.Deps.Config.ReadOptions(), g.Deps.Config.Options
	if s := values["cpus"]; s != "" {
		if _, err := fmt.Sscanf(s, "%g", &g.cpus); err != nil || !(g.cpus >= 0.1 && g.cpus <= 10_000) {
			o.Fail("cpus", "use a number of cores, such as 4")
		}
	}
	if s := values["memory"]; s != "" {
		var err error
		if g.memory, err = muster.ParseSize(s); err != nil || g.memory <= 0 {
			o.Fail("memory", "use a size, such as 16GiB")
		}
	}
	g.sharedDir = filepath.Join(os.TempDir(), "trainforge")
	if s := values["projects"]; s != "" {
		var err error
		g.sharedDir, err = filepath.Abs(s)
		g.sharedConfigured = true
		if info, statErr := os.Stat(g.sharedDir); err != nil || statErr != nil || !info.IsDir() {
			o.Fail("projects", "not a directory: create it, on the file system that the workers share")
		}
	}
	return o.Err()
}

func (g *Gateway) tasksDir() string   { return filepath.Join(g.Deps.Dir, "tasks") }
func (g *Gateway) uploadsDir() string { return filepath.Join(g.Deps.Dir, "uploads") }
func (g *Gateway) zipsDir() string    { return filepath.Join(g.Deps.Dir, "projects") }

// Ready returns why projects cannot be given to workers that download nothing, if that is so.
func (g *Gateway) Ready() error {
	if g.writeFailing.Load() {
		return muster.Errorf(muster.Unavailable, "projects cannot be written to %s: see the server's log", g.sharedDir)
	}
	return nil
}

// Run serves until ctx ends.
func (g *Gateway) Run(ctx context.Context) error {
	g.Listener.WriteError = writeError
	return g.Serve(ctx, dialect.Routes(g.handlers(), writeError, notFound), g.watch)
}

// handlers returns what serves each route.
func (g *Gateway) handlers() map[string]dialect.Handler {
	handlers := map[string]dialect.Handler{}
	for pattern, handle := range map[string]func(*request) error{
		"GET /health":     g.health,
		"GET /api/health": g.health,

		"POST /api/workers/register":               joining(withBody(g.register)),
		"POST /api/workers/heartbeat":              fromWorker(g, g.nodeHeartbeat, (*heartbeat).sender),
		"GET /api/workers/jobs":                    g.nodeJobs,
		"POST /api/workers/job-status":             fromWorker(g, g.nodeJobStatus, (*nodeStatus).sender),
		"POST /api/workers/unregister":             fromWorker(g, g.nodeUnregister, (*claimRequest).sender),
		"POST /api/workers/{worker}/heartbeat":     fromWorker(g, g.externalHeartbeat, nil),
		"GET /api/workers":                         g.workers,
		"GET /api/workers/realtime":                g.workers,
		"GET /api/workers/stats/all":               g.allStats,
		"GET /api/workers/{id}":                    g.worker,
		"GET /api/workers/{id}/stats":              g.worker,
		"PUT /api/workers/{worker}/status":         fromWorker(g, g.workerEvent, nil),
		"PUT /api/workers/{worker}/progress":       fromWorker(g, g.workerProgress, nil),
		"POST /api/workers/{worker}/job-started":   fromWorker(g, g.workerEvent, nil),
		"POST /api/workers/{worker}/job-completed": fromWorker(g, g.workerEvent, nil),
		"DELETE /api/workers/{id}":                 g.externalUnregister,

		"GET /api/jobs":                  g.list,
		"POST /api/jobs":                 g.submit,
		"POST /api/jobs/distributed":     g.submit,
		"GET /api/jobs/pending":          g.pending,
		"POST /api/jobs/{id}/claim":      joining(fromWorker(g, g.claim, (*claimRequest).sender)),
		"PUT /api/jobs/{id}/status":      withBody(g.externalJobStatus),
		"GET /api/jobs/{id}/files":       g.files,
		"POST /api/jobs/{id}/logs/batch": withBody(g.addLogBatch),
		"POST /api/jobs/{id}/logs":       withBody(g.addLogEntry),
		"GET /api/jobs/{id}/logs":        g.logs,
		"POST /api/jobs/{id}/results":    g.uploadResults,

		"GET /api/jobs/{id}":                        g.show,
		"PUT /api/jobs/{id}":                        withBody(g.updateJob),
		"DELETE /api/jobs/{id}":                     g.remove,
		"GET /api/jobs/{id}/results":                g.results,
		"GET /api/jobs/{id}/results/files":          g.resultFiles,
		"GET /api/jobs/{id}/results/file/{path...}": g.resultFile,
	} {
		handlers[pattern] = func(w http.ResponseWriter, r *http.Request) error {
			return handle(&request{w: w, r: r, caller: dialect.CallerFromContext(r.Context())})
		}
	}
	return handlers
}

// request is one with its answer.
type request struct {
	w      http.ResponseWriter
	r      *http.Request
	caller dialect.Caller
}

func (req *request) reply(v any) error { return dialect.Reply(req.w, v) }

// joining returns a handler for callers who may join workers.
func joining(handle func(*request) error) func(*request) error {
	return func(req *request) error {
		if err := req.caller.CanJoinWorkers(); err != nil {
			return err
		}
		return handle(req)
	}
}

// withBody returns a handler for requests with a JSON body.
func withBody[B any](handle func(*request, *B) error) func(*request) error {
	return func(req *request) error {
		var body B
		if err := dialect.Decode(req.r, maxBody, &body); err != nil {
			return err
		}
		return handle(req, &body)
	}
}

// fromWorker returns a handler for requests of a worker, which are a sign of life. Its id is in the path, or what sender returns.
func fromWorker[B any](g *Gateway, handle func(*request, *fleet.Worker, *B) error, sender func(*B) string) func(*request) error {
	return withBody(func(req *request, body *B) error {
		id := req.r.PathValue("worker")
		if sender != nil {
			id = sender(body)
		}
		if err := checkID("worker_id", id); err != nil {
			return err
		}
		w, err := g.authorizedWorker(req, id)
		if err != nil {
			return err
		}
		w.Touch(nil)
		return handle(req, w, body)
	})
}

func (req *request) isLocal() bool {
	local, _ := req.r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if dialect.RemoteAddr(req.r).IsLoopback() || local == nil {
		return true
	}
	at, err := netip.ParseAddrPort(local.String())
	return err == nil && at.Addr().Unmap() == dialect.RemoteAddr(req.r)
}

// externalURL is the URL by which the caller reaches the gateway, without a key that it may have in its path.
func (req *request) externalURL() string {
	scheme := "http"
	if req.r.TLS != nil || req.r.Header.Get("X-Forwarded-Proto") == "https" { // behind a tunnel or a proxy
		scheme = "https"
	}
	return scheme + "://" + req.r.Host
}

type statusError struct {
	status int
	text   string
}

func (f *statusError) Error() string { return f.text }

const jobNotFoundText = "Job not found"

func jobNotFound() error    { return &statusError{http.StatusNotFound, jobNotFoundText} }
func workerNotFound() error { return &statusError{http.StatusNotFound, "Worker not found"} }

// writeError answers as TrainForge does when something is wrong.
func writeError(w http.ResponseWriter, _ *http.Request, err error) {
	body, status := map[string]any{"error": err.Error()}, dialect.HTTPStatus(w, err)
	if f, ok := errors.AsType[*statusError](err); ok {
		status = f.status
	} else if status == http.StatusUnauthorized {
		body = map[string]any{"error": "Unauthorized", "message": err.Error()}
	}
	dialect.WriteJSON(w, status, body)
}

// notFound answers where TrainForge has nothing either.
func notFound(w http.ResponseWriter, r *http.Request) {
	dialect.WriteJSON(w, http.StatusNotFound, map[string]any{
		"error": "Endpoint not found", "path": lenient.Text(r.URL.Path, maxMessage), "method": r.Method, "requestId": dialect.NewUUID(),
	})
}

func (g *Gateway) health(req *request) error {
	up := time.Since(g.started).Seconds()
	return req.reply(map[string]any{
		"status": "healthy", "timestamp": time.Now().UTC().Format(time.RFC3339Nano), "version": "0.1.0", "service": "muster",
		"database": "connected", "uptime": up, "muster_version": g.Deps.Version,
	})
}

// reportContext is a context for what has to be done even if the caller goes away.
func (g *Gateway) reportContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), g.timeouts.report)
}

func splitLines(message string) []string {
	return strings.Split(strings.TrimRight(strings.ReplaceAll(message, "\r\n", "\n"), "\n"), "\n")
}
