package api

import (
	"context"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"golang.org/x/sync/semaphore"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/cache"
	"github.com/muster-dev/muster/internal/api/granting"
	"github.com/muster-dev/muster/internal/api/keyring"
	"github.com/muster-dev/muster/internal/api/schema"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/blob"
	"github.com/muster-dev/muster/internal/eventbus"
	"github.com/muster-dev/muster/internal/link"
	"github.com/muster-dev/muster/internal/store"
	"github.com/muster-dev/muster/internal/tasklog"
	"github.com/muster-dev/muster/internal/traceparent"
)

// Config is what the API is made of. All of it is needed.
type Config struct {
	Engine      Engine
	Store       store.Reader
	Keys        store.KeyStore
	Logs        tasklog.Store
	Blobs       blob.Store
	Grants      store.GrantStore
	LateReports store.LateReportReader
	BlobNeeds   BlobNeeds
	VerifyCID   func(context.Context, store.Content) (bool, error) // whether a file has the identifier that is told; NotFound if it is not there
	Events      *eventbus.Bus
	Views       Views
	// Webhooks sends notifications, and Notices is where they and their log are.
	Webhooks      Webhooks
	Notifications NotificationStore
	// Parse reads a job spec, YAML or JSON, until ctx is done, and checks it, by check, too, which may change it; name stands in messages.
	Parse      func(ctx context.Context, data []byte, name string, check func(*muster.Spec) []muster.FieldError) ([]*muster.Spec, error)
	Kinds      Kinds
	LinkSocket http.Handler    // at link.PathSocket; it asks WorkerOfRequest who connects
	LinkPoll   http.Handler    // at link.PathPoll, the same
	Heartbeat  muster.Duration // how often workers renew their leases: no spec may ask for a shorter one
	Log        *slog.Logger
	Version    string // of this build
	// Metrics serves /metrics to keys that may see the fleet; nil means that there is no such path.
	Metrics http.Handler
	// ObserveRequest is called when a request begins, by the pattern of its route, and done when it has been answered. Nil means that nobody
	// measures requests.
	ObserveRequest func(method, route string) (done func(status int, stream bool))
	// Connections is how many connections the server has at most: what one key may hold of them depends on it. 0 means 1,000.
	Connections int
	// Gateways says how the gateways to other systems are. It answers at once. Nil means that there are none.
	Gateways func() []wire.Gateway
	// Dashboard takes what no other route takes. Nil means that there is none.
	Dashboard Dashboard
}

// Dashboard is the web application.
type Dashboard interface {
	http.Handler
	// Handles says whether the dashboard has an answer for a request: a file, or a page for a browser.
	Handles(r *http.Request) bool
}

// server is the state that the handlers share.
type server struct {
	Config
	handler        http.Handler
	keyring        *keyring.Ring
	crossOrigin    *http.CrossOriginProtection // of requests that browsers send with the cookie
	projects       *projectCache
	storeHealth    storeHealth
	overviewCache  overviewCache
	limits         *keyring.Limits
	parseBudget    *semaphore.Weighted  // bytes that the parses in progress may allocate
	searchLimiter  limiter              // of logs
	chartLimiter   limiter              // what reads whole logs for its points
	curveCache     *cache.LRU[curveKey] // JSON of attempts that have ended, so that their logs are read once
	explainLimiter limiter              // what asks all workers
	explainCache   cache.Values[explanationKey, muster.Explanation]
	blobChecker    *blob.Checker
	blobGranter    *granting.Granter
	api            huma.API
	literalMethods map[string]string // the methods of paths without parameters
}

// New makes the handler of a whole server. Its http.Server sets the timeouts for reading
// headers; everything that takes long sets its own deadlines.
func New(cfg Config) http.Handler { return newServer(cfg).handler }

func newServer(cfg Config) *server {
	mux := http.NewServeMux()
	s := &server{
		Config:        cfg,
		keyring:       keyring.New(cfg.Keys),
		crossOrigin:   http.NewCrossOriginProtection(),
		projects:      newProjectCache(cfg.Store),
		storeHealth:   storeHealth{keys: cfg.Keys},
		overviewCache: overviewCache{encoded: cache.NewValues[overviewKey, encodedPage](maxOverviews)},
		explainCache:  cache.NewValues[explanationKey, muster.Explanation](maxExplanations),
		curveCache:    cache.NewLRU[curveKey](maxCurveBytes),
		limits:        keyring.NewLimits(cfg.Connections),
		parseBudget:   semaphore.NewWeighted(parseBudget),
		blobChecker:   blob.NewChecker(cfg.Blobs, cfg.Log),
		blobGranter:   granting.New(cfg.Grants),
		api:           huma.NewAPI(humaConfig(cfg.Version), router{humago.NewAdapter(mux, "")}),
	}
	s.searchLimiter = newLimiter(maxConcurrentSearches, s.limits.AcquireSearch, "too many searches of logs are under way: try again later")
	s.chartLimiter = newLimiter(maxConcurrentCharts, s.limits.AcquireChart, "too many requests for metrics, usage and events of tasks and states of jobs are under way: try again later")
	s.explainLimiter = newLimiter(maxConcurrentExplanations, s.limits.AcquireExplanation, "too many explanations of tasks and plans of jobs are under way: try again later")
	s.api.UseMiddleware(withStatusOverride, s.restrictToJob, s.rejectEmptyParams)
	s.sessionRoutes()
	s.jobRoutes()
	s.stateRoutes()
	s.overviewRoutes()
	s.taskRoutes()
	s.allTasksRoutes()
	s.logRoutes()
	s.logWindowRoutes()
	s.usageRoutes()
	s.metricRoutes()
	s.artifactRoutes()
	s.contentRoutes()
	s.blobRoutes()
	s.workerRoutes()
	s.kindRoutes()
	s.keyRoutes()
	s.eventRoutes()
	s.notifyRoutes()
	s.taskViewRoutes()
	s.shareRoutes()
	s.joinRoutes()
	s.downloadRoutes()
	s.healthRoutes()
	s.schemaRoutes()
	schema.Refine(s.api.OpenAPI())
	s.indexLiteralPaths()
	s.docRoutes(mux)
	s.metricsRoutes(mux)
	mux.Handle(link.PathSocket, cfg.LinkSocket)
	mux.Handle(link.PathPoll, cfg.LinkPoll)
	s.handler = withCompression(s.withMetrics(mux, s.withLogging(s.withAuth(s.withNotFound(mux)))))
	return s
}

func humaConfig(version string) huma.Config {
	cfg := huma.DefaultConfig("Muster", version)
	cfg.Info.Description = "Runs AI and compute jobs on every machine you have."
	cfg.CreateHooks = nil                  // no $schema fields in answers
	cfg.OpenAPIPath, cfg.DocsPath = "", "" // docs.go
	cfg.SchemasPath = ""                   // they are in the OpenAPI document
	cfg.Transformers = []huma.Transformer{convertHumaError}
	cfg.RejectUnknownQueryParameters = true
	cfg.Components.SecuritySchemes = map[string]*huma.SecurityScheme{
		"key": {Type: "http", Scheme: "bearer", Description: "An API key: `mst_ROLE_…`, from `muster keys create`."},
	}
	cfg.Security = []map[string][]string{{"key": {}}}
	schema.Alias(cfg.Components.Schemas)
	return cfg
}

// withNotFound answers what no route takes with a problem in place of a text.
func (s *server) withNotFound(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.rejectMethod(w, r) {
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
		discard := &discardWriter{header: http.Header{}}
		mux.ServeHTTP(discard, r)
		if allow := discard.header.Get("Allow"); allow != "" {
			methodNotAllowed(w, r, allow)
			return
		}
		s.writeError(w, r, muster.Errorf(muster.NotFound, "there is nothing at %s: the API is described at %s", r.URL.Path, pathDocs))
	})
}

// isAPI says whether a path belongs to programs: what is not there is answered with a problem, not with a page.
func isAPI(path string) bool {
	return strings.HasPrefix(path, "/api/") || strings.HasPrefix(path, "/link/") || strings.HasPrefix(path, pathIPFS) || strings.HasPrefix(path, "/download/")
}

// discardWriter takes what a ServeMux says of a request without a route.
type discardWriter struct{ header http.Header }

func (v *discardWriter) Header() http.Header         { return v.header }
func (v *discardWriter) Write(b []byte) (int, error) { return len(b), nil }
func (v *discardWriter) WriteHeader(int)             {}

// withLogging logs each request, and turns a panic into an answer. Its context has the trace that it is a part of.
func (s *server) withLogging(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if parent, ok := traceparent.Parse(r.Header.Get("Traceparent")); ok {
			r = r.WithContext(traceparent.NewContext(r.Context(), parent))
		}
		s.Log.DebugContext(r.Context(), "request", slog.String("method", r.Method), slog.String("path", r.URL.Path))
		defer s.recoverPanic(w, r)
		next.ServeHTTP(w, r)
	})
}

// recoverPanic answers a request whose handler panicked.
func (s *server) recoverPanic(w http.ResponseWriter, r *http.Request) {
	switch p := recover(); p {
	case nil:
	case http.ErrAbortHandler:
		panic(p)
	default:
		s.Log.ErrorContext(r.Context(), "request failed", slog.String("method", r.Method), slog.String("path", r.URL.Path),
			slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
		writeProblem(w, newProblem(http.StatusInternalServerError, errInternal))
	}
}

// apiPath returns a path of the API.
func apiPath(path string) string { return wire.Prefix + path }
