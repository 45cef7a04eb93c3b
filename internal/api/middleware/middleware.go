// Package middleware has HTTP handlers around the API: compression, and the observation of requests.
package middleware

import (
	"compress/gzip"
	"io"
	"net/http"
	"strings"

	"github.com/klauspost/compress/gzhttp"

	"github.com/muster-dev/muster/internal/api/wire"
)

// Observe calls begin for each request with its method and its route pattern in mux, whose number is bounded, unlike that of paths, and done when it was
// answered. stream is true for event streams, WebSockets, and what isLink says of a path. begin may be nil.
func Observe(mux *http.ServeMux, next http.Handler, isLink func(path string) bool, begin func(method, route string) (done func(status int, stream bool))) http.Handler {
	if begin == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, pattern := mux.Handler(r)
		recorder := &statusRecorder{ResponseWriter: w}
		done := begin(r.Method, routeOf(pattern))
		defer func() { done(recorder.statusCode(), isLink(r.URL.Path) || recorder.isStream()) }()
		next.ServeHTTP(recorder, r)
	})
}

// routeOf returns a pattern without its method, or "other".
func routeOf(pattern string) string {
	if pattern == "" {
		return "other"
	}
	if _, path, ok := strings.Cut(pattern, " "); ok {
		return path
	}
	return pattern
}

// statusRecorder records the status of an answer.
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

// ReadFrom lets the kernel copy from a file if it can.
func (w *statusRecorder) ReadFrom(r io.Reader) (int64, error) { return io.Copy(w.ResponseWriter, r) }

func (w *statusRecorder) statusCode() int {
	if w.status == 0 {
		return http.StatusOK
	}
	return w.status
}

// isStream reports whether the answer is an event stream or a WebSocket.
func (w *statusRecorder) isStream() bool {
	return w.status == http.StatusSwitchingProtocols || strings.HasPrefix(w.Header().Get("Content-Type"), "text/event-stream")
}

// minCompressSize is the size in bytes from which answers are compressed.
const minCompressSize = 4 << 10

// Compress compresses JSON answers for clients that accept gzip, but not streams, logs, blobs and artifacts, which
// have offsets. It must be the outermost handler, because gzhttp flushes streams through the http.Flusher that it wraps.
func Compress(next http.Handler) http.Handler {
	wrap, err := gzhttp.NewWrapper(gzhttp.MinSize(minCompressSize), gzhttp.CompressionLevel(gzip.BestSpeed), gzhttp.ContentTypes([]string{"application/json"}))
	if err != nil {
		panic(err) // the options are valid
	}
	compressing := wrap(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if compressible(r) {
			compressing.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func compressible(r *http.Request) bool {
	path, ok := strings.CutPrefix(r.URL.Path, wire.Prefix+"/")
	if !ok || r.Method != http.MethodGet || r.Header.Get("Upgrade") != "" || strings.Contains(r.Header.Get("Accept"), "text/event-stream") {
		return false
	}
	return path != "events" && !strings.HasPrefix(path, "blobs/") && !strings.Contains(path, "/artifacts")
}
