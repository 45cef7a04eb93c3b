// Package dashboard serves the built dashboard, a single-page application, from embedded files.
//
// Names of files below /assets/ contain a hash of their content, so that they can be cached forever; other files are validated by
// their ETag. A file with a .br or .gz variant is sent compressed to clients that accept it. Other paths that a browser opens as a
// page are answered with index.html, so that every view has its own URL.
//
// The content security policy forbids other origins and inline scripts. Pages cannot be framed.
package dashboard

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"
)

const (
	indexFile = "index.html"
	assetsDir = "assets/" // names of files in it contain a hash of their content
)

// contentSecurityPolicy applies to all pages. Inline styles are allowed, because the component library uses them.
const contentSecurityPolicy = "default-src 'self'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; media-src 'self' blob:; " +
	"font-src 'self'; connect-src 'self'; worker-src 'self' blob:; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

//go:embed placeholder.html
var placeholderHTML []byte

// contentTypes are the content types of files by extension: those of package mime depend on the system.
var contentTypes = map[string]string{
	".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".mjs": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8",
	".svg": "image/svg+xml", ".png": "image/png", ".ico": "image/x-icon", ".webp": "image/webp", ".woff2": "font/woff2", ".wasm": "application/wasm",
	".json": "application/json", ".webmanifest": "application/manifest+json", ".map": "application/json", ".txt": "text/plain; charset=utf-8",
}

// encodings are the encodings of variants of files, best first.
var encodings = []struct{ name, ext string }{{"br", ".br"}, {"gzip", ".gz"}}

// Handler serves the dashboard.
type Handler struct {
	files map[string]file // by path without the leading slash
}

// file is one file in all its encodings.
type file struct {
	plain   []byte
	etag    string            // without quotes
	encoded map[string][]byte // by the name of the encoding
}

// New reads the files of a built dashboard. Without an index.html the handler serves a page that explains how to build it.
func New(files fs.FS) (*Handler, error) {
	content := map[string][]byte{}
	err := fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasPrefix(path.Base(name), ".") {
			return err
		}
		content[name], err = fs.ReadFile(files, name)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the dashboard: %w", err)
	}
	h := &Handler{files: map[string]file{}}
	for name, plain := range content {
		if isEncoding(name, content) {
			continue
		}
		sum := sha256.Sum256(plain)
		f := file{plain: plain, etag: hex.EncodeToString(sum[:12]), encoded: map[string][]byte{}}
		for _, e := range encodings {
			if b, ok := content[name+e.ext]; ok {
				f.encoded[e.name] = b
			}
		}
		h.files[name] = f
	}
	return h, nil
}

// isEncoding reports whether a file is an encoded variant of another one.
func isEncoding(name string, content map[string][]byte) bool {
	for _, e := range encodings {
		if plain, ok := strings.CutSuffix(name, e.ext); ok && content[plain] != nil {
			return true
		}
	}
	return false
}

// Built reports whether the dashboard was built.
func (h *Handler) Built() bool {
	_, ok := h.files[indexFile]
	return ok
}

// Handles reports whether the handler serves a request without another route: a file, or a page for a browser.
func (h *Handler) Handles(r *http.Request) bool {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return false
	}
	name := strings.TrimPrefix(r.URL.Path, "/")
	if _, ok := h.files[name]; ok || name == "" {
		return true
	}
	return !strings.HasPrefix(name, assetsDir) && strings.Contains(r.Header.Get("Accept"), "text/html")
}

// ServeHTTP answers a request for which Handles is true.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Content-Security-Policy", contentSecurityPolicy)
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	name := strings.TrimPrefix(r.URL.Path, "/")
	f, ok := h.files[name]
	if !ok {
		name = indexFile
		f, ok = h.files[indexFile]
	}
	if !ok {
		header.Set("Cache-Control", "no-store")
		header.Set("Content-Type", contentTypes[".html"])
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(placeholderHTML))
		return
	}
	contentType, known := contentTypes[path.Ext(name)]
	if !known {
		contentType = "application/octet-stream"
	}
	header.Set("Content-Type", contentType)
	header.Set("Cache-Control", "no-cache")
	if strings.HasPrefix(name, assetsDir) {
		header.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	header.Set("Vary", "Accept-Encoding")
	body, etag := f.plain, f.etag
	for _, e := range encodings {
		if b, ok := f.encoded[e.name]; ok && acceptsEncoding(r.Header.Get("Accept-Encoding"), e.name) {
			body, etag = b, f.etag+"-"+e.name
			header.Set("Content-Encoding", e.name)
			break
		}
	}
	header.Set("ETag", `"`+etag+`"`)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body))
}

// acceptsEncoding reports whether an Accept-Encoding header accepts an encoding by name.
func acceptsEncoding(header, encoding string) bool {
	return slices.ContainsFunc(strings.Split(header, ","), func(part string) bool {
		name, parameters, _ := strings.Cut(part, ";")
		q := strings.TrimRight(strings.ReplaceAll(parameters, " ", ""), "0")
		return strings.EqualFold(strings.TrimSpace(name), encoding) && q != "q=" && q != "q=0."
	})
}
