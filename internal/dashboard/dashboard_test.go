package dashboard_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/muster-dev/muster/internal/dashboard"
)

var built = fstest.MapFS{
	".gitignore":              {Data: []byte("*\n")},
	"index.html":              {Data: []byte("<html>app</html>")},
	"favicon.svg":             {Data: []byte("<svg/>")},
	"assets/app-1a2b3c.js":    {Data: []byte("console.log(1)")},
	"assets/app-1a2b3c.js.br": {Data: []byte("brotli")},
	"assets/app-1a2b3c.js.gz": {Data: []byte("gzip")},
	"assets/data.gz":          {Data: []byte("a file of its own")},
}

func get(t *testing.T, h *dashboard.Handler, method, path string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	if !h.Handles(r) {
		w.Code = http.StatusNotFound
		return w
	}
	h.ServeHTTP(w, r)
	return w
}

func handler(t *testing.T, files fstest.MapFS) *dashboard.Handler {
	t.Helper()
	h, err := dashboard.New(files)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

const browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"

func TestServe(t *testing.T) {
	h := handler(t, built)
	for _, tt := range []struct {
		name, method, path string
		header             []string
		status             int
		body, kind, cache  string
		encoding           string
	}{
		{"the page", "GET", "/", nil, 200, "<html>app</html>", "text/html; charset=utf-8", "no-cache", ""},
		{"a view", "GET", "/jobs/17", []string{"Accept", browser}, 200, "<html>app</html>", "text/html; charset=utf-8", "no-cache", ""},
		{"a view with a dot", "GET", "/tasks/17.3", []string{"Accept", browser}, 200, "<html>app</html>", "text/html; charset=utf-8", "no-cache", ""},
		{"a path for a program", "GET", "/jobs/17", []string{"Accept", "application/json"}, 404, "", "", "", ""},
		{"a path for curl", "GET", "/jobs/17", []string{"Accept", "*/*"}, 404, "", "", "", ""},
		{"an asset", "GET", "/assets/app-1a2b3c.js", nil, 200, "console.log(1)", "text/javascript; charset=utf-8", "public, max-age=31536000, immutable", ""},
		{"an asset in brotli", "GET", "/assets/app-1a2b3c.js", []string{"Accept-Encoding", "gzip, deflate, br"}, 200, "brotli", "text/javascript; charset=utf-8", "public, max-age=31536000, immutable", "br"},
		{"an asset in gzip", "GET", "/assets/app-1a2b3c.js", []string{"Accept-Encoding", "gzip;q=0.5, br;q=0.0"}, 200, "gzip", "text/javascript; charset=utf-8", "public, max-age=31536000, immutable", "gzip"},
		{"encodings refused", "GET", "/assets/app-1a2b3c.js", []string{"Accept-Encoding", "br; q=0, gzip;q=0"}, 200, "console.log(1)", "text/javascript; charset=utf-8", "public, max-age=31536000, immutable", ""},
		{"an asset of an older build", "GET", "/assets/app-000000.js", []string{"Accept", browser}, 404, "", "", "", ""},
		{"an encoding by its name", "GET", "/assets/app-1a2b3c.js.br", nil, 404, "", "", "", ""},
		{"a gzip file", "GET", "/assets/data.gz", nil, 200, "a file of its own", "application/octet-stream", "public, max-age=31536000, immutable", ""},
		{"an icon", "GET", "/favicon.svg", nil, 200, "<svg/>", "image/svg+xml", "no-cache", ""},
		{"only the head", "HEAD", "/", nil, 200, "", "text/html; charset=utf-8", "no-cache", ""},
		{"a form", "POST", "/", []string{"Accept", browser}, 404, "", "", "", ""},
		{"a hidden file", "GET", "/.gitignore", nil, 404, "", "", "", ""},
		{"a path outside", "GET", "/../secret", nil, 404, "", "", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := get(t, h, tt.method, tt.path, tt.header...)
			if w.Code != tt.status || w.Body.String() != tt.body {
				t.Fatalf("%d %q, want %d %q", w.Code, w.Body, tt.status, tt.body)
			}
			for name, want := range map[string]string{"Content-Type": tt.kind, "Cache-Control": tt.cache, "Content-Encoding": tt.encoding} {
				if got := w.Header().Get(name); got != want {
					t.Errorf("%s is %q, want %q", name, got, want)
				}
			}
		})
	}
}

func TestValidation(t *testing.T) {
	h := handler(t, built)
	first := get(t, h, "GET", "/")
	etag := first.Header().Get("ETag")
	if w := get(t, h, "GET", "/jobs", "Accept", browser, "If-None-Match", etag); etag == "" || w.Code != http.StatusNotModified {
		t.Errorf("the page with ETag %s is sent again: %d", etag, w.Code)
	}
	plain := get(t, h, "GET", "/assets/app-1a2b3c.js").Header().Get("ETag")
	if br := get(t, h, "GET", "/assets/app-1a2b3c.js", "Accept-Encoding", "br").Header().Get("ETag"); br == plain {
		t.Errorf("two encodings have the ETag %s", br)
	}
}

// No page can run inline scripts, load anything from other servers or be framed.
func TestPolicy(t *testing.T) {
	for _, files := range []fstest.MapFS{built, {}} {
		w := get(t, handler(t, files), "GET", "/")
		csp := w.Header().Get("Content-Security-Policy")
		for _, want := range []string{"default-src 'self';", "script-src 'self';", "object-src 'none'", "base-uri 'none'", "frame-ancestors 'none'"} {
			if !strings.Contains(csp, want) {
				t.Errorf("the policy lacks %s: %s", want, csp)
			}
		}
		if strings.Contains(csp, "unsafe-eval") || strings.Contains(csp, "http") {
			t.Errorf("the policy is too wide: %s", csp)
		}
	}
}

// Without a built dashboard every page explains how to build it.
func TestPlaceholder(t *testing.T) {
	h := handler(t, fstest.MapFS{".gitignore": {Data: []byte("*\n")}})
	for _, path := range []string{"/", "/jobs/17"} {
		w := get(t, h, "GET", path, "Accept", browser)
		if page := w.Body.String(); w.Code != 200 || h.Built() || !strings.Contains(page, "make build") || !strings.Contains(page, "/api/docs") {
			t.Errorf("%s: %d %s", path, w.Code, page)
		}
		if cache := w.Header().Get("Cache-Control"); cache != "no-store" {
			t.Errorf("%s can be cached: %s", path, cache)
		}
	}
}
