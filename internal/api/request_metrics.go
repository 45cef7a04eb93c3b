package api

import (
	"io"
	"net/http"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/auth"
)

const pathMetrics = "/metrics"

// metricsRoutes serves Config.Metrics to keys that may see the fleet and the jobs of all projects.
func (s *server) metricsRoutes(mux *http.ServeMux) {
	if s.Metrics == nil {
		return
	}
	mux.HandleFunc("GET "+pathMetrics, func(w http.ResponseWriter, r *http.Request) {
		p := principalOf(r.Context())
		err := auth.Authorize(p, auth.ReadWorkers, auth.Object{})
		if err == nil && p.Project != "" {
			err = muster.Errorf(muster.Forbidden, "the key %q is for project %q only, and metrics are about all projects: use a key for all projects", p.Name, p.Project)
		}
		if err != nil {
			s.writeError(w, r, err)
			return
		}
		s.Metrics.ServeHTTP(w, r)
	})
}

// withMetrics tells Config.Measure of each request, by the pattern of its route: a path has what clients make up.
func (s *server) withMetrics(mux *http.ServeMux, next http.Handler) http.Handler {
	if s.ObserveRequest == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, pattern := mux.Handler(r)
		recorder := &statusRecorder{ResponseWriter: w}
		done := s.ObserveRequest(r.Method, routeOf(pattern))
		defer func() { done(recorder.statusCode(), isLink(r.URL.Path) || recorder.isEventStream()) }()
		next.ServeHTTP(recorder, r)
	})
}

// routeOf returns a pattern without its method. What no route takes is a page of the dashboard, or nothing.
func routeOf(pattern string) string {
	if pattern == "" {
		return "other"
	}
	if _, path, ok := strings.Cut(pattern, " "); ok {
		return path
	}
	return pattern
}

// statusRecorder notes the status of an answer.
type statusRecorder struct {
	http.ResponseWriter

	status int
}

// Unwrap is for http.ResponseController.
func (w *statusRecorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (w *statusRecorder) WriteHeader(status int) {
	if w.status < http.StatusOK && w.status != http.StatusSwitchingProtocols {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// ReadFrom leaves a copy from a file to the kernel, where that can do it.
func (w *statusRecorder) ReadFrom(r io.Reader) (int64, error) { return io.Copy(w.ResponseWriter, r) }

func (w *statusRecorder) statusCode() int {
	if w.status == 0 {
		return http.StatusOK
	}
	return w.status
}

// isEventStream says whether the answer is an endless one.
func (w *statusRecorder) isEventStream() bool {
	return strings.HasPrefix(w.Header().Get("Content-Type"), "text/event-stream")
}
