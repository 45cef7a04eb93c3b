package api

import (
	"context"
	"log/slog"
	"net/http"
	"runtime/debug"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"golang.org/x/sync/semaphore"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/blob"
	"github.com/muster-dev/muster/internal/link"
	"github.com/muster-dev/muster/internal/notify"
	"github.com/muster-dev/muster/internal/store"
	"github.com/muster-dev/muster/internal/tasklog"
)

// Config is what the API is made of. All of it is needed.
type Config struct {
	Engine Engine
	Store  store.Reader
	Keys   store.Keys
	Logs   tasklog.Logs
	Blobs  blob.Store
	Grants store.Grants
	Late   store.LateReports
	Reach  Reach
	Prove  func(context.Context, store.Content) (bool, error) // whether a file has the identifier that is told; NotFound if it is not there
	Events *notify.Bus
	// Parse reads a job spec, YAML or JSON, until ctx is done, and checks it, by check, too, which may change it; name stands in messages.
	Parse      func(ctx context.Context, data []byte, name string, check func(*muster.Spec) []muster.FieldError) ([]*muster.Spec, error)
	Kinds      Kinds
	LinkSocket http.Handler    // at link.PathSocket; it asks LinkedWorker who connects
	LinkPoll   http.Handler    // at link.PathPoll, the same
	Heartbeat  muster.Duration // how often workers renew their leases: no spec may ask for a shorter one
	Log        *slog.Logger
	Version    string // of this build
	// Connections is how many connections the server has at most: what one key may hold of them depends on it. 0 means 1,000.
	Connections int
	// Gateways says how the gateways to other systems are. It answers at once. Nil means that there are none.
	Gateways func() []wire.Gateway
}

// server is the state that the handlers share.
type server struct {
	Config
	handler     http.Handler
	keyring     *keyring
	projects    *projects
	storeHealth storeHealth
	bounds      *bounds
	parsing     *semaphore.Weighted // bytes that the parses in progress may allocate
	checker     *blob.Checker
	granter     *granter
	api         huma.API
}

// New makes the handler of a whole server. Its http.Server sets the timeouts for reading
// headers; everything that takes long sets its own deadlines.
func New(cfg Config) http.Handler { return newServer(cfg).handler }

func newServer(cfg Config) *server {
	mux := http.NewServeMux()
	s := &server{
		Config:      cfg,
		keyring:     newKeyring(cfg.Keys),
		projects:    newProjects(cfg.Store),
		storeHealth: storeHealth{keys: cfg.Keys},
		bounds:      newBounds(cfg.Connections),
		parsing:     semaphore.NewWeighted(parsedAtOnce),
		checker:     blob.NewChecker(cfg.Blobs, cfg.Log),
		granter:     &granter{store: cfg.Grants},
		api:         huma.NewAPI(humaConfig(cfg.Version), router{humago.NewAdapter(mux, "")}),
	}
	s.api.UseMiddleware(refusalStatus)
	s.jobRoutes()
	s.taskRoutes()
	s.logRoutes()
	s.usageRoutes()
	s.artifactRoutes()
	s.contentRoutes()
	s.blobRoutes()
	s.workerRoutes()
	s.kindRoutes()
	s.keyRoutes()
	s.eventRoutes()
	s.joinRoutes()
	s.healthRoutes()
	s.dropUnusedSchemas()
	s.docRoutes(mux)
	mux.Handle(link.PathSocket, cfg.LinkSocket)
	mux.Handle(link.PathPoll, cfg.LinkPoll)
	s.handler = s.logged(s.authenticated(s.routed(mux)))
	return s
}

func humaConfig(version string) huma.Config {
	cfg := huma.DefaultConfig("Muster", version)
	cfg.Info.Description = "Runs AI and compute jobs on every machine you have."
	cfg.CreateHooks = nil                  // no $schema fields in answers
	cfg.OpenAPIPath, cfg.DocsPath = "", "" // docs.go
	cfg.SchemasPath = ""                   // they are in the OpenAPI document
	cfg.Transformers = []huma.Transformer{humanProblem}
	cfg.RejectUnknownQueryParameters = true
	cfg.Components.SecuritySchemes = map[string]*huma.SecurityScheme{
		"key": {Type: "http", Scheme: "bearer", Description: "An API key: `mst_ROLE_…`, from `muster keys create`."},
	}
	cfg.Security = []map[string][]string{{"key": {}}}
	aliasSchemas(cfg.Components.Schemas)
	return cfg
}

// routed answers what no route takes with a problem in place of a text.
func (s *server) routed(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, pattern := mux.Handler(r); pattern != "" {
			mux.ServeHTTP(w, r)
			return
		}
		verdict := &verdict{header: http.Header{}}
		mux.ServeHTTP(verdict, r)
		if allow := verdict.header.Get("Allow"); allow != "" {
			w.Header().Set("Allow", allow)
			writeProblem(w, problemOf(http.StatusMethodNotAllowed, muster.Errorf(muster.Invalid, "%s %s is not possible: %s is", r.Method, r.URL.Path, allow)))
			return
		}
		s.refuse(w, r, muster.Errorf(muster.NotFound, "there is nothing at %s: the API is described at %s", r.URL.Path, pathDocs))
	})
}

// verdict takes what a ServeMux says of a request without a route.
type verdict struct{ header http.Header }

func (v *verdict) Header() http.Header         { return v.header }
func (v *verdict) Write(b []byte) (int, error) { return len(b), nil }
func (v *verdict) WriteHeader(int)             {}

// logged logs each request, and turns a panic into an answer.
func (s *server) logged(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.Log.DebugContext(r.Context(), "request", slog.String("method", r.Method), slog.String("path", r.URL.Path))
		defer s.recovered(w, r)
		next.ServeHTTP(w, r)
	})
}

// recovered answers a request whose handler panicked.
func (s *server) recovered(w http.ResponseWriter, r *http.Request) {
	switch p := recover(); p {
	case nil:
	case http.ErrAbortHandler:
		panic(p)
	default:
		s.Log.ErrorContext(r.Context(), "request failed", slog.String("method", r.Method), slog.String("path", r.URL.Path),
			slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
		writeProblem(w, problemOf(http.StatusInternalServerError, errOurs))
	}
}

// prefixed returns a path of the API.
func prefixed(path string) string { return wire.Prefix + path }
