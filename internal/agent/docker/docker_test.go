package docker

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// TestAnEngineThatWasUpgraded holds that one is spoken to in a version that it knows, also if it is another one
// than when it was spoken to first.
func TestAnEngineThatWasUpgraded(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", filepath.Join(t.TempDir(), "sock"))
	if err != nil {
		t.Skip("no sockets of Unix: ", err)
	}
	var speaks atomic.Value // the one version that it knows
	server := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		v, ok := speaks.Load().(string)
		w.Header().Set("Api-Version", v)
		w.Header().Set("Content-Type", "application/json")
		switch {
		case q.URL.Path == "/_ping":
		case !ok || !strings.HasPrefix(q.URL.Path, "/v"+v+"/"):
			w.WriteHeader(http.StatusBadRequest)
			_, _ = fmt.Fprintf(w, `{"message": "the version of %s is not taken: this is %s"}`, q.URL.Path, v)
		case strings.HasSuffix(q.URL.Path, "/containers/json"):
			_, _ = w.Write([]byte("[]"))
		default:
			_, _ = fmt.Fprintf(w, `{"ApiVersion": %q}`, v)
		}
	})}}
	server.Start()
	defer server.Close()
	e, err := Open("unix://" + l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	for _, v := range []string{"1.44", "1.51", "1.47"} {
		speaks.Store(v)
		about, err := e.About(t.Context())
		if err != nil || about.API != v {
			t.Fatalf("%+v, %v: want %s", about, err, v)
		}
		if _, err := e.Containers(t.Context(), "", ""); err != nil {
			t.Error(err)
		}
	}
	// It was away between two questions whether it is there.
	for _, v := range []string{"1.47", "1.51"} {
		speaks.Store(v)
		if err := e.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := e.Containers(t.Context(), "", ""); err != nil {
			t.Error(err)
		}
	}
}
