package api

import (
	"embed"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/muster-dev/muster/internal/api/wire"
)

const (
	pathOpenAPI = wire.Prefix + "/openapi.json"
	pathDocs    = "/api/docs"
)

//go:embed docs
var docFiles embed.FS

// docRoutes serves the OpenAPI document and a page that shows it, which needs
// nothing from elsewhere. It comes after all other routes.
func (s *server) docRoutes(mux *http.ServeMux) {
	docJSON, err := json.Marshal(s.api.OpenAPI())
	if err != nil {
		panic(fmt.Sprintf("OpenAPI document: %v", err)) // made of our own types: a test finds it
	}
	mux.HandleFunc("GET "+pathOpenAPI, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(docJSON) // a caller who left does not read it
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

// apiVersion stands in the document of Document, which does not depend on the build.
const apiVersion = "v1"

// Document returns the OpenAPI document of the API without a running server.
func Document() *huma.OpenAPI {
	return newServer(Config{Version: apiVersion, LinkSocket: http.NotFoundHandler(), LinkPoll: http.NotFoundHandler()}).api.OpenAPI()
}

func setDocsSecurityHeaders(w http.ResponseWriter) {
	w.Header().Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; frame-ancestors 'none'")
	w.Header().Set("X-Content-Type-Options", "nosniff")
}
