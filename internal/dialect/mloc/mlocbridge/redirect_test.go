package mlocbridge

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRedirectsDoNotLeadKeysAway checks that a host which redirects a download to another one does not pass on the headers of the task, and that
// results are posted only to the host that the task names.
func TestRedirectsDoNotLeadKeysAway(t *testing.T) {
	t.Parallel()
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || r.Header.Get("Authorization") != "" || r.Header.Get("X-Api-Key") != "" {
			t.Errorf("%s with the headers %v was sent to another host", r.Method, r.Header)
		}
		_, _ = w.Write([]byte("weights"))
	}))
	defer other.Close()
	host := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL+"/weights", http.StatusTemporaryRedirect)
	}))
	defer host.Close()
	c, header := newHTTPClient(0), http.Header{"Authorization": {"a token"}, "X-Api-Key": {"a key"}}
	file := filepath.Join(t.TempDir(), "weights")
	if err := c.fetch(t.Context(), fetchTimeout, host.URL+"/weights", header, file); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != "weights" {
		t.Errorf("the download is %q, %v", got, err)
	}
	err := c.send(t.Context(), postTimeout, http.MethodPost, host.URL+"/results", header, strings.NewReader("a result"), 8, checkStatus)
	if err == nil || !strings.Contains(err.Error(), "returned status 307") {
		t.Errorf("a redirected result: %v", err)
	}
}
