package api

import (
	"net/http"

	"github.com/muster-dev/muster/internal/api/rest"
	"github.com/muster-dev/muster/internal/auth"
)

const pathMetrics = "/metrics"

// metricsRoutes serves Config.Metrics.
func (s *server) metricsRoutes() {
	if s.Metrics != nil {
		rest.Raw(s.router, rest.Route{ID: "get-metrics", Method: http.MethodGet, Path: pathMetrics, Tag: "fleet", Verb: auth.ReadMetrics,
			Summary: "Show the metrics of the server, as Prometheus reads them"}, s.Metrics)
	}
}
