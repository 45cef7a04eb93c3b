package containertest

import (
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"

	"github.com/muster-dev/muster/internal/testkit"
)

// Fault is how a registry fails.
type Fault int

// The faults of registries. The first is none.
const (
	NoFault     Fault = iota
	Truncated         // layers end in the middle, with the connection
	Failing           // every request is answered with 500
	Corrupt           // layers have other bytes than their digest says
	RateLimited       // every request is answered with 429, as where too many came
	Echoing           // every authenticated request is answered with 403 and its credentials
)

// Registry is a registry of images on loopback, over HTTP, that fails on demand. Its methods may be called at any time.
type Registry struct {
	Addr  string // host:port; names of its images begin with it
	store http.Handler

	mu         sync.Mutex
	user       string
	password   string
	token      string // for the scheme Bearer; "" for Basic
	fault      Fault
	stallAfter int64         // bytes of a layer after which nothing more comes; -1 for never
	delay      time.Duration // before each piece of a layer
	resumed    chan struct{}
	requests   []string
	closed     chan struct{}
}

// NewRegistry starts a registry without faults and authentication, and stops it after the test.
func NewRegistry(tb testing.TB) *Registry {
	tb.Helper()
	discard := log.New(io.Discard, "", 0) //nolint:forbidigo // the registry wants one of these
	r := &Registry{
		store:      registry.New(registry.Logger(discard)),
		stallAfter: -1, resumed: make(chan struct{}), closed: make(chan struct{}),
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.NoError(tb, err)
	server := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(r.serve), ReadHeaderTimeout: time.Minute}}
	server.Start()
	r.Addr = l.Addr().String()
	tb.Cleanup(func() {
		close(r.closed)
		server.CloseClientConnections()
		server.Close()
	})
	return r
}

// Push puts an image under a name, such as acme/train:v1, and returns its full name and its digest.
func (r *Registry) Push(tb testing.TB, name string, b ImageSpec) (ref, dig string) {
	tb.Helper()
	repo, tag, _ := strings.Cut(name, ":")
	if tag == "" {
		tag = "latest"
	}
	layer := b.layer(tb)
	config := b.config(tb, layer)
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestSpeed)
	testkit.NoError(tb, err)
	if _, err := w.Write(layer); err != nil {
		tb.Fatal(err)
	}
	testkit.NoError(tb, w.Close())
	for _, blob := range [][]byte{config, packed.Bytes()} {
		r.put(tb, http.MethodPost, "/v2/"+repo+"/blobs/uploads/?digest="+digest(blob), "application/octet-stream", blob)
	}
	const kind = "application/vnd.docker.distribution.manifest.v2+json"
	manifest := encode(tb, map[string]any{
		"schemaVersion": 2, "mediaType": kind,
		"config": map[string]any{"mediaType": "application/vnd.docker.container.image.v1+json", "size": len(config), "digest": digest(config)},
		"layers": []any{map[string]any{"mediaType": "application/vnd.docker.image.rootfs.diff.tar.gzip", "size": packed.Len(), "digest": digest(packed.Bytes())}},
	})
	r.put(tb, http.MethodPut, "/v2/"+repo+"/manifests/"+tag, kind, manifest)
	return r.Addr + "/" + repo + ":" + tag, digest(manifest)
}

// put stores a part of an image, whatever the registry's faults.
func (r *Registry) put(tb testing.TB, method, path, kind string, body []byte) {
	tb.Helper()
	q := httptest.NewRequest(method, path, bytes.NewReader(body))
	q.Header.Set("Content-Type", kind)
	a := httptest.NewRecorder()
	r.store.ServeHTTP(a, q)
	if a.Code != http.StatusCreated {
		tb.Fatalf("push: %s %s: %d %s", method, path, a.Code, a.Body)
	}
}

// RequireAuth makes the registry require a user and a password; an empty user disables that.
func (r *Registry) RequireAuth(user, password string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.user, r.password, r.token = user, password, ""
}

// RequireToken makes the registry require a token of its own for each repository, which /token gives to a user with a password, as Docker Hub
// and ghcr.io do: distribution.github.io/distribution/spec/auth/token.
func (r *Registry) RequireToken(user, password string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.user, r.password, r.token = user, password, rand.Text()
}

// SetFault lets the registry fail from now on.
func (r *Registry) SetFault(f Fault) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fault = f
}

// Stall lets layers stop for good after that many bytes, also those on the way, until Resume.
func (r *Registry) Stall(after int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stallAfter = after
}

// Resume lets all that stalled continue.
func (r *Registry) Resume() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stallAfter = -1
	close(r.resumed)
	r.resumed = make(chan struct{})
}

// Throttle lets layers come as a trickle: a piece of 4 KiB after each pause. Zero is as fast as it goes.
func (r *Registry) Throttle(pause time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.delay = pause
}

// Requests returns how many requests came whose "METHOD path" has part in it, such as "/manifests/"
// or "GET /v2/acme/train/blobs/".
func (r *Registry) Requests(part string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, s := range r.requests {
		if strings.Contains(s, part) {
			n++
		}
	}
	return n
}

func (r *Registry) serve(w http.ResponseWriter, q *http.Request) {
	r.mu.Lock()
	r.requests = append(r.requests, q.Method+" "+q.URL.Path)
	user, password, token, fault := r.user, r.password, r.token, r.fault
	r.mu.Unlock()
	w.Header().Set("Docker-Distribution-API-Version", "registry/2.0")
	u, p, basic := q.BasicAuth()
	isUser := user == "" || u == user && p == password
	repo, _, _ := strings.Cut(strings.TrimPrefix(q.URL.Path, "/v2/"), "/manifests/")
	repo, _, _ = strings.Cut(repo, "/blobs/")
	scope := "repository:" + repo + ":pull"
	switch {
	case token != "" && q.URL.Path == "/token" && isUser:
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"token": %q}`, token+q.URL.Query().Get("scope"))
	case token != "" && q.URL.Path != "/token" && q.URL.Path != "/v2/" && q.Header.Get("Authorization") != "Bearer "+token+scope,
		token != "" && q.URL.Path == "/v2/" && !strings.HasPrefix(q.Header.Get("Authorization"), "Bearer "+token):
		w.Header().Set("WWW-Authenticate", `Bearer realm="http://`+r.Addr+`/token",service="test",scope="`+scope+`"`)
		writeRegistryError(w, http.StatusUnauthorized, "UNAUTHORIZED", "authentication required")
	case token == "" && !isUser, token != "" && q.URL.Path == "/token":
		w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
		writeRegistryError(w, http.StatusUnauthorized, "UNAUTHORIZED", "authentication required")
	case fault == Echoing && basic && q.URL.Path != "/v2/":
		writeRegistryError(w, http.StatusForbidden, "DENIED", "you sent "+q.Header.Get("Authorization")+", "+u+" with "+p)
	case fault == Failing:
		writeRegistryError(w, http.StatusInternalServerError, "UNKNOWN", "the registry has a bad day")
	case fault == RateLimited:
		writeRegistryError(w, http.StatusTooManyRequests, "TOOMANYREQUESTS", "you have reached your pull rate limit")
	case q.Method == http.MethodGet && strings.Contains(q.URL.Path, "/blobs/"):
		r.blob(w, q, fault)
	default:
		r.store.ServeHTTP(w, q)
	}
}

func writeRegistryError(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, `{"errors":[{"code":"`+code+`","message":"`+message+`"}]}`)
}

// blob sends a layer or configuration in small pieces, as far as the registry's faults let it.
func (r *Registry) blob(w http.ResponseWriter, q *http.Request, fault Fault) {
	a := httptest.NewRecorder()
	r.store.ServeHTTP(a, q)
	maps.Copy(w.Header(), a.Header())
	body := a.Body.Bytes()
	if fault == Corrupt && len(body) > 0 {
		body = bytes.Clone(body)
		body[len(body)/2] ^= 1
	}
	w.WriteHeader(a.Code)
	for sent := int64(0); len(body) > 0; {
		if fault == Truncated && sent >= int64(a.Body.Len()/2) {
			panic(http.ErrAbortHandler)
		}
		piece := body[:min(len(body), 4096)]
		if !r.pace(q, sent, int64(len(piece))) {
			panic(http.ErrAbortHandler)
		}
		n, err := w.Write(piece)
		if err != nil {
			return
		}
		sent += int64(n)
		body = body[n:]
		if f, ok := w.(http.Flusher); ok {
			f.Flush()
		}
	}
}

// pace waits until the next n bytes may be sent; it returns false if the client has disconnected.
func (r *Registry) pace(q *http.Request, sent, n int64) bool {
	for {
		r.mu.Lock()
		stalled, resumed, delay := r.stallAfter >= 0 && sent+n > r.stallAfter, r.resumed, r.delay
		r.mu.Unlock()
		if !stalled && delay == 0 {
			return true
		}
		var delayed <-chan time.Time // never, for what stalls
		if !stalled {
			delayed = time.After(delay)
		}
		select {
		case <-delayed:
			return true
		case <-resumed:
		case <-q.Context().Done():
			return false
		case <-r.closed:
			return false
		}
	}
}
