package rest

import (
	"context"
	"log/slog"
	"net/http"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/caller"
	"github.com/muster-dev/muster/internal/api/schema"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/auth"
)

// Router registers operations at a ServeMux.
type Router struct {
	mux            *http.ServeMux
	huma           huma.API
	log            *slog.Logger
	projectOf      func(context.Context, muster.JobID) (string, error)
	routes         []Route
	byPattern      map[string]Route  // of mux
	literalMethods map[string]string // methods of paths without parameters
}

// New returns a router of the API in a version of Muster. projectOf returns the project of a job, or NotFound.
func New(mux *http.ServeMux, version string, log *slog.Logger, projectOf func(context.Context, muster.JobID) (string, error)) *Router {
	rr := &Router{mux: mux, log: log, projectOf: projectOf, byPattern: map[string]Route{}}
	rr.huma = huma.NewAPI(rr.config(version), wildcardAdapter{humago.NewAdapter(mux, "")})
	rr.huma.UseMiddleware(withStatusOverride, rr.describe, rr.restrictToJob, rr.rejectEmptyParams)
	return rr
}

func (rr *Router) config(version string) huma.Config {
	cfg := huma.DefaultConfig("Muster", version)
	cfg.Info.Description = "Runs AI and compute jobs on every machine you have."
	cfg.CreateHooks = nil                  // no $schema fields in answers
	cfg.OpenAPIPath, cfg.DocsPath = "", "" // package api serves both
	cfg.SchemasPath = ""                   // they are in the OpenAPI document
	cfg.Transformers = []huma.Transformer{rr.convertHumaError}
	cfg.RejectUnknownQueryParameters = true
	cfg.Components.SecuritySchemes = map[string]*huma.SecurityScheme{
		"key": {Type: "http", Scheme: "bearer", Description: "An API key: `mst_ROLE_…`, from `muster keys create`."},
	}
	cfg.Security = []map[string][]string{{"key": {}}}
	schema.Alias(cfg.Components.Schemas)
	return cfg
}

// Document returns the OpenAPI document.
func (rr *Router) Document() *huma.OpenAPI { return rr.huma.OpenAPI() }

// Routes returns all operations in the order of their registration.
func (rr *Router) Routes() []Route { return slices.Clone(rr.routes) }

// Finish completes the document. Call it once, after the registration of all operations.
func (rr *Router) Finish() {
	schema.Refine(rr.Document())
	rr.indexLiteralPaths()
}

// wildcardAdapter registers wildcard parameters with ServeMux's "..." suffix, which OpenAPI
// does not know.
type wildcardAdapter struct{ huma.Adapter }

// Handle registers a handler.
func (a wildcardAdapter) Handle(op *huma.Operation, handler func(huma.Context)) {
	if routeOf(op).Wildcard {
		withWildcard := *op
		withWildcard.Path = wildcardPath(op.Path)
		op = &withWildcard
	}
	a.Adapter.Handle(op, handler)
}

// wildcardPath returns the path for ServeMux of one whose last parameter may have slashes.
func wildcardPath(path string) string { return path[:len(path)-1] + "...}" }

// restrictToJob rejects requests of a key for one job that are not about that job.
func (rr *Router) restrictToJob(ctx huma.Context, next func(huma.Context)) {
	p := caller.FromContext(ctx.Context())
	if p.Job == 0 {
		next(ctx)
		return
	}
	if err := authorizeShared(ctx, p); err != nil {
		r, w := humago.Unwrap(ctx)
		rr.WriteError(w, r, err)
		return
	}
	next(ctx)
}

func authorizeShared(ctx huma.Context, p auth.Principal) error {
	op := ctx.Operation()
	if !routeOf(op).Shared {
		return muster.Errorf(muster.Forbidden, "the key %q can only read job %d: use another key for %s %s", p.Name, p.Job, op.Method, op.Path)
	}
	id := p.Job
	switch {
	case strings.Contains(op.Path, "{job}"):
		if job, err := muster.ParseJobID(ctx.Param("job")); err == nil {
			id = job
		}
	case strings.Contains(op.Path, "{task}"):
		if task, err := muster.ParseTaskID(ctx.Param("task")); err == nil {
			id = task.Job
		}
	}
	if id != p.Job {
		caller.Deny(ctx.Context(), muster.Errorf(muster.Forbidden, "the key %q only reads job %d", p.Name, p.Job))
		return jobNotFound(id)
	}
	return nil
}

// rejectEmptyParams rejects empty parameters that must not be empty: huma treats them as absent.
func (rr *Router) rejectEmptyParams(ctx huma.Context, next func(huma.Context)) {
	r, w := humago.Unwrap(ctx)
	query := r.URL.Query()
	for _, p := range ctx.Operation().Parameters {
		values := query[p.Name]
		if p.In == "header" {
			values = r.Header.Values(p.Name)
		}
		if slices.Contains(values, "") && !allowsEmpty(p.Schema) {
			rr.WriteError(w, r, muster.Errorf(muster.Invalid, "invalid request: %s.%s is empty: set a value or omit the parameter", p.In, p.Name))
			return
		}
	}
	next(ctx)
}

// allowsEmpty reports whether a parameter may be an empty string. Elements of a list may not: huma treats a list whose first element is empty as absent.
func allowsEmpty(s *huma.Schema) bool {
	matchesEmpty, err := regexp.MatchString(s.Pattern, "")
	return s.Type == huma.TypeString && len(s.Enum) == 0 && s.Format == "" && matchesEmpty && err == nil
}

// indexLiteralPaths stores the methods of paths without parameters. Such a path may also match a pattern with parameters.
func (rr *Router) indexLiteralPaths() {
	rr.literalMethods = map[string]string{}
	for path, item := range rr.Document().Paths {
		if strings.Contains(path, "{") {
			continue
		}
		var allow []string
		for _, op := range schema.Operations(item) {
			allow = append(allow, op.Method)
			if op.Method == http.MethodGet {
				allow = append(allow, http.MethodHead)
			}
		}
		slices.Sort(allow)
		rr.literalMethods[path] = strings.Join(slices.Compact(allow), ", ")
	}
}

// RejectMethod answers a request for a path of the API with a method that the path does not have. It returns false if it has not answered.
func (rr *Router) RejectMethod(w http.ResponseWriter, r *http.Request) bool {
	allow, known := rr.literalMethods[r.URL.Path]
	if known {
		if slices.Contains(strings.Split(allow, ", "), r.Method) {
			return false
		}
	} else {
		if _, pattern := rr.mux.Handler(r); pattern != "" {
			return false
		}
		discard := &discardWriter{header: http.Header{}}
		rr.mux.ServeHTTP(discard, r)
		if allow = discard.header.Get("Allow"); allow == "" {
			return false
		}
	}
	w.Header().Set("Allow", allow)
	writeProblem(w, newProblem(http.StatusMethodNotAllowed, muster.Errorf(muster.Invalid, "method %s is not allowed for %s: use %s", r.Method, r.URL.Path, allow)))
	return true
}

// discardWriter collects the headers of a ServeMux's answer to a request without a route.
type discardWriter struct{ header http.Header }

func (v *discardWriter) Header() http.Header         { return v.header }
func (v *discardWriter) Write(b []byte) (int, error) { return len(b), nil }
func (v *discardWriter) WriteHeader(int)             {}

// RecoverPanic answers with an internal error if the handler panicked. It must be deferred directly.
func (rr *Router) RecoverPanic(w http.ResponseWriter, r *http.Request) {
	switch p := recover(); p {
	case nil:
	case http.ErrAbortHandler:
		panic(p)
	default:
		rr.log.ErrorContext(r.Context(), "request failed", slog.String("method", r.Method), slog.String("path", r.URL.Path),
			slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
		writeProblem(w, newProblem(http.StatusInternalServerError, errInternal))
	}
}

// Path returns a path of the API.
func Path(path string) string { return wire.Prefix + path }
