package api

import (
	"net/http"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/auth"
)

const pathMetrics = "/metrics"

// metricsRoutes serves Config.Metrics to keys that may read workers and all projects.
func (s *server) metricsRoutes(mux *http.ServeMux) {
	if s.Metrics == nil {
		return
	}
	mux.HandleFunc("GET "+pathMetrics, func(w http.ResponseWriter, r *http.Request) {
		p := principalOf(r.Context())
		err := auth.Authorize(p, auth.ReadWorkers, auth.Object{})
		if err == nil && p.Project != "" {
			err = muster.Errorf(muster.Forbidden, "the key %q is for project %q only: use a key for all projects to read metrics", p.Name, p.Project)
		}
		if err != nil {
			s.router.WriteError(w, r, err)
			return
		}
		s.Metrics.ServeHTTP(w, r)
	})
}
