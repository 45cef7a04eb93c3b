package api

import (
	"net/http"

	"github.com/danielgtaylor/huma/v2"
)

// Document returns the OpenAPI document of this build.
func Document() *huma.OpenAPI {
	return newServer(Config{LinkSocket: http.NotFoundHandler(), LinkPoll: http.NotFoundHandler()}).api.OpenAPI()
}
