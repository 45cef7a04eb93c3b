package api

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/access"
	"github.com/muster-dev/muster/internal/api/cache"
	"github.com/muster-dev/muster/internal/api/granting"
	"github.com/muster-dev/muster/internal/api/keyring"
	"github.com/muster-dev/muster/internal/api/middleware"
	"github.com/muster-dev/muster/internal/api/rest"
	"github.com/muster-dev/muster/internal/api/sessiontoken"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/artifacturl"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/blob"
	"github.com/muster-dev/muster/internal/browserguard"
	"github.com/muster-dev/muster/internal/eventbus"
	"github.com/muster-dev/muster/internal/execrelay"
	"github.com/muster-dev/muster/internal/link"
	"github.com/muster-dev/muster/internal/lru"
	"github.com/muster-dev/muster/internal/oidc"
	"github.com/muster-dev/muster/internal/ratelimit"
	"github.com/muster-dev/muster/internal/store"
	"github.com/muster-dev/muster/internal/tasklog"
	"github.com/muster-dev/muster/internal/traceparent"
)

// Config has the dependencies of the API. All are required, except where nil is allowed.
type Config struct {
	Engine        Engine
	JobEditor     JobEditor
	Store         store.Reader
	Keys          store.KeyStore
	Enrol         store.EnrolmentStore
	Sessions      *sessiontoken.Issuer // of the tokens of workers
	URLs          *artifacturl.Signer  // of the URLs of artifacts
	Ring          *keyring.Ring        // of Keys and Sessions; nil means one that does not store when keys were used
	Logs          tasklog.Store
	Blobs         blob.Store
	Grants        store.GrantStore
	LateReports   store.LateReportReader
	BlobNeeds     BlobNeeds
	VerifyCID     func(context.Context, store.Content) (bool, error) // reports whether a file has the content identifier; NotFound if the file does not exist
	Events        *eventbus.Bus
	Views         Views
	Webhooks      Webhooks
	Retention     Retention
	Secrets       Secrets
	Schedules     Schedules
	Cache         CacheStore
	Backup        BackupFunc
	Notifications NotificationStore
	Audit         Auditor
	AuditLog      store.AuditReader
	// Parse reads job specs, YAML or JSON, and validates them, also with check, which may modify them. name is for messages.
	Parse        func(ctx context.Context, data []byte, name string, check func(*muster.Spec) []muster.FieldError) ([]*muster.Spec, error)
	Kinds        Kinds
	LinkSocket   http.Handler     // at link.PathSocket; it calls WorkerOfRequest
	LinkPoll     http.Handler     // at link.PathPoll; it calls WorkerOfRequest
	Exec         *execrelay.Relay // nil only without clients
	LinkExec     http.Handler     // at link.PathExec; it calls WorkerOfRequest
	LinkExecPoll http.Handler     // at link.PathExecPoll; it calls WorkerOfRequest
	Heartbeat    muster.Duration  // interval in which workers renew their leases
	Log          *slog.Logger
	Version      string         // of this build
	Pin          string         // fingerprint of the server's certificate authority, which new keys end in; "" for none
	URL          string         // public URL of the server; "" takes that of each request
	SignIn       *oidc.Provider // signs users in; nil for none
	// Metrics serves /metrics to keys that may read workers; nil means that the path does not exist.
	Metrics http.Handler
	// ObserveRequest is called with the route pattern when a request begins, and done when it was answered. It may be nil.
	ObserveRequest func(method, route string) (done func(status int, stream bool))
	// RateLimits limits requests per second; it may be nil.
	RateLimits *ratelimit.Limiter
	// Connections is the maximum number of connections of the server, from which the limits of keys follow. 0 means 1,000.
	Connections int
	// Gateways returns the state of the gateways to other systems, without delay. It may be nil.
	Gateways func() []wire.Gateway
	// Dashboard serves paths without a route. It may be nil.
	Dashboard Dashboard
}

// Dashboard is the web application.
type Dashboard interface {
	http.Handler
	// Handles reports whether the dashboard serves a request: a file, or a page for a browser.
	Handles(r *http.Request) bool
}

// server is the state that the handlers share.
type server struct {
	Config
	handler        http.Handler
	access         *access.Access
	projects       *lru.Cache[muster.JobID, string] // of jobs, which never change
	storeHealth    storeHealth
	overviewCache  overviewCache
	limits         *keyring.Limits
	parseBudget    *semaphore.Weighted          // bytes that running parses may allocate
	searchLimiter  limiter                      // log searches
	chartLimiter   limiter                      // requests that read whole logs or all states of a large job
	curveCache     *lru.Cache[curveKey, []byte] // JSON of finished attempts
	explainLimiter limiter                      // explanations and plans
	explainCache   cache.Values[explanationKey, muster.Explanation]
	blobChecker    *blob.Checker
	blobGranter    *granting.Granter
	touchedFolders *lru.Cache[string, time.Time]
	router         *rest.Router
}

// New returns the handler of the whole server. The http.Server must limit the time to read
// headers; handlers set their own deadlines.
func New(cfg Config) http.Handler { return newServer(cfg).handler }

func newServer(cfg Config) *server {
	if cfg.Ring == nil {
		cfg.Ring = keyring.New(cfg.Keys, cfg.Sessions, cfg.RateLimits, cfg.Log)
	}
	mux := http.NewServeMux()
	s := &server{
		Config:        cfg,
		projects:      lru.NewCounted[muster.JobID, string](maxCachedProjects),
		storeHealth:   storeHealth{keys: cfg.Keys},
		overviewCache: overviewCache{encoded: cache.NewValues[overviewKey, encodedPage](maxOverviews)},
		explainCache:  cache.NewValues[explanationKey, muster.Explanation](maxExplanations),
		curveCache:    lru.New[curveKey](maxCurveBytes, func(b []byte) int { return len(b) }),
		limits:        keyring.NewLimits(cfg.Connections),
		parseBudget:   semaphore.NewWeighted(parseBudget),
		blobChecker:   blob.NewChecker(cfg.Blobs, cfg.Log),
		blobGranter:   granting.New(cfg.Grants),

		touchedFolders: lru.NewCounted[string, time.Time](maxTouchedFolders),
	}
	s.router = rest.New(mux, cfg.Version, cfg.Log, s.projectOf)
	s.searchLimiter = newLimiter(maxConcurrentSearches, s.limits.AcquireSearch, "too many log searches are running: try again later")
	s.chartLimiter = newLimiter(maxConcurrentCharts, s.limits.AcquireChart, "too many requests for task metrics, usage and events and job states are running: try again later")
	s.explainLimiter = newLimiter(maxConcurrentExplanations, s.limits.AcquireExplanation, "too many task explanations and job plans are running: try again later")
	s.access = access.Register(s.router, access.Config{Keys: cfg.Keys, Enrol: cfg.Enrol, Workers: cfg.Engine, Ring: cfg.Ring, Sessions: cfg.Sessions, Limits: cfg.RateLimits, Jobs: cfg.Store, Log: cfg.Log, Version: cfg.Version, Pin: cfg.Pin, URL: cfg.URL, SignIn: cfg.SignIn, URLs: cfg.URLs})
	s.jobRoutes()
	s.stateRoutes()
	s.overviewRoutes()
	s.taskRoutes()
	s.logRoutes()
	s.logWindowRoutes()
	s.usageRoutes()
	s.artifactRoutes()
	s.blobRoutes()
	s.workerRoutes()
	s.kindRoutes()
	s.eventRoutes()
	s.notifyRoutes()
	s.secretRoutes()
	s.scheduleRoutes()
	s.cacheRoutes()
	s.retentionRoutes()
	s.backupRoutes()
	s.auditRoutes()
	s.downloadRoutes()
	s.healthRoutes()
	s.schemaRoutes()
	s.router.Finish()
	s.docRoutes(mux)
	s.metricsRoutes()
	s.linkRoutes()
	s.handler = middleware.Compress(browserguard.Headers(middleware.Observe(mux, s.withAudit(s.withLogging(s.withAuth(s.withNotFound(mux)))), isLink, s.ObserveRequest)))
	return s
}

// withNotFound answers requests without a route with the dashboard or a problem document.
func (s *server) withNotFound(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.router.RejectMethod(w, r) {
			return
		}
		if _, pattern := mux.Handler(r); pattern != "" {
			mux.ServeHTTP(w, r)
			return
		}
		if s.Dashboard != nil && !isAPI(r.URL.Path) && s.Dashboard.Handles(r) {
			s.Dashboard.ServeHTTP(w, r)
			return
		}
		s.router.WriteError(w, r, muster.Errorf(muster.NotFound, "unknown path %s: see %s for the API", r.URL.Path, pathDocs))
	})
}

// linkRoutes serves the sessions of workers.
func (s *server) linkRoutes() {
	for _, l := range []struct {
		rest.Route
		handler http.Handler
	}{
		{rest.Route{ID: "connect-worker", Path: link.PathSocket, Summary: "Session of a worker, over a WebSocket"}, s.LinkSocket},
		{rest.Route{ID: "poll-worker", Path: link.PathPoll, Summary: "Session of a worker, over HTTP requests"}, s.LinkPoll},
		{rest.Route{ID: "connect-exec", Path: link.PathExec, Summary: "Commands in a worker's tasks, over a WebSocket"}, s.LinkExec},
		{rest.Route{ID: "poll-exec", Path: link.PathExecPoll, Summary: "Commands in a worker's tasks, over HTTP requests"}, s.LinkExecPoll},
	} {
		l.Tag, l.Verb, l.Audit = "workers", auth.ConnectWorker, rest.AuditDenials // sessions are recorded when they start
		rest.Raw(s.router, l.Route, l.handler)
	}
}

// isAPI reports whether a path is for programs: unknown ones are answered with a problem, not with a page.
func isAPI(path string) bool {
	return strings.HasPrefix(path, "/api/") || strings.HasPrefix(path, "/link/") || strings.HasPrefix(path, pathIPFS) || strings.HasPrefix(path, "/download/")
}

// withLogging logs each request, adds its trace to the context, and recovers panics.
func (s *server) withLogging(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if parent, ok := traceparent.Parse(r.Header.Get("Traceparent")); ok {
			r = r.WithContext(traceparent.NewContext(r.Context(), parent))
		}
		s.Log.DebugContext(r.Context(), "request", slog.String("method", r.Method), slog.String("path", r.URL.Path))
		defer s.router.RecoverPanic(w, r)
		next.ServeHTTP(w, r)
	})
}
