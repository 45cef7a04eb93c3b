package api

import (
	"embed"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/muster-dev/muster/docs"
	"github.com/muster-dev/muster/internal/api/rest"
	"github.com/muster-dev/muster/internal/api/streaming"
	"github.com/muster-dev/muster/internal/api/wire"
)

const (
	pathOpenAPI = wire.Prefix + "/openapi.json"
	pathDocs    = "/api/docs"
)

//go:embed docs
var docFiles embed.FS

// docRoutes serves the OpenAPI document and a self-contained page that shows it. Call it
// after all other routes are registered.
func (s *server) docRoutes(mux *http.ServeMux) {
	docJSON, err := json.Marshal(s.router.Document())
	if err != nil {
		panic(fmt.Sprintf("OpenAPI document: %v", err)) // a test covers it
	}
	mux.HandleFunc("GET "+pathOpenAPI, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(docJSON) // the client may have left
	})
	files := http.StripPrefix("/api/", http.FileServerFS(docFiles))
	mux.HandleFunc("GET "+pathDocs, func(w http.ResponseWriter, r *http.Request) {
		setDocsSecurityHeaders(w)
		http.ServeFileFS(w, r, docFiles, "docs/index.html")
	})
	mux.HandleFunc("GET "+pathDocs+"/{file}", func(w http.ResponseWriter, r *http.Request) {
		setDocsSecurityHeaders(w)
		files.ServeHTTP(w, r)
	})
}

// apiVersion is the version in Document, which does not depend on the build.
const apiVersion = "v1"

// Document returns the OpenAPI document of the API without a running server.
func Document() *huma.OpenAPI { return newRouter().Document() }

// Routes returns all operations of the API, also those that are not in its document.
func Routes() []rest.Route { return newRouter().Routes() }

// newRouter returns the router of a server that does not run.
func newRouter() *rest.Router {
	none := http.NotFoundHandler()
	return newServer(Config{Version: apiVersion, LinkSocket: none, LinkPoll: none, LinkExec: none, LinkExecPoll: none, Metrics: none}).router
}

func setDocsSecurityHeaders(w http.ResponseWriter) {
	w.Header().Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; frame-ancestors 'none'")
}

const pathJobSchema = "/schemas/job.json"

func (s *server) schemaRoutes() {
	rest.Stream(s.router, rest.Route{ID: "get-job-schema", Method: http.MethodGet, Path: rest.Path(pathJobSchema), Tag: "jobs", Public: true, ContentType: rest.JSONSchemaType,
		Summary: "Show the JSON Schema (2020-12) of job files, for editors"}, getJobSchema)
}

func getJobSchema(w http.ResponseWriter, r *http.Request, _ *struct{}) error {
	h := w.Header()
	h.Set("Content-Type", rest.JSONSchemaType)
	h.Set("Cache-Control", "max-age=300")
	h.Set("Access-Control-Allow-Origin", "*")              // public; editors in browsers read it
	_, _ = streaming.NewWriter(w, r).Write(docs.JobSchema) // the client may have left
	return nil
}
