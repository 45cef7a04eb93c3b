package docker

import (
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
)

// Only Podman, which cannot be asked, is not asked: Docker passes on what a registry says, also that something is not supported.
func TestAccessThatCannotBeAsked(t *testing.T) {
	for component, allowed := range map[string]bool{"Podman Engine": true, "Engine": false} {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", filepath.Join(t.TempDir(), "sock"))
		if err != nil {
			t.Skip("no sockets of Unix: ", err)
		}
		server := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			w.Header().Set("Api-Version", "1.41")
			w.Header().Set("Content-Type", "application/json")
			switch {
			case strings.HasSuffix(q.URL.Path, "/version"):
				_, _ = w.Write([]byte(`{"ApiVersion":"1.41","Components":[{"Name":"` + component + `"}]}`))
			case strings.Contains(q.URL.Path, "/distribution/"):
				w.WriteHeader(http.StatusInternalServerError)
				_, _ = w.Write([]byte(`{"message":"the media type is not supported"}`))
			default:
				_, _ = w.Write([]byte("{}"))
			}
		})}}
		server.Start()
		e, err := Open("unix://" + l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if err := e.CheckAccess(t.Context(), "ghcr.io/acme/train:1", nil); (err == nil) != allowed {
			t.Errorf("%s: %v", component, err)
		}
		_ = e.Close()
		server.Close()
	}
}
