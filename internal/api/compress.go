package api

import (
	"compress/gzip"
	"net/http"
	"strings"

	"github.com/klauspost/compress/gzhttp"

	"github.com/muster-dev/muster/internal/api/wire"
)

// minCompressSize is the size in bytes from which answers are compressed.
const minCompressSize = 4 << 10

// withCompression compresses JSON answers for clients that accept gzip, but not streams, logs, blobs and artifacts, which
// have offsets. It must be the outermost handler, because gzhttp flushes streams through the http.Flusher that it wraps.
func withCompression(next http.Handler) http.Handler {
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
	if !ok || r.Method != http.MethodGet || strings.Contains(r.Header.Get("Accept"), "text/event-stream") {
		return false
	}
	return path != "events" && !strings.HasPrefix(path, "blobs/") && !strings.Contains(path, "/artifacts")
}
