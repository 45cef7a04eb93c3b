package trainforge

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/muster-dev/muster"
)

// TestUnknownJobIsNotFound checks that all requests fail with NotFound if the server answers 500 with "Job not found":
// with Unavailable, a claim would be retried without end.
func TestUnknownJobIsNotFound(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = w.Write([]byte(`{"error": "Failed", "message": "Failed: Job not found"}`))
	}))
	defer srv.Close()
	r, err := newServerClient(&BridgeConfig{Scheduler: srv.URL})
	if err != nil {
		t.Fatal(err)
	}
	a, err := r.call(t.Context(), http.MethodGet, "/api/jobs/x", nil)
	if err != nil || muster.CodeOf(a.Err("the request")) != muster.NotFound {
		t.Errorf("call: %v, %v", a, err)
	}
	if _, _, err := r.download(t.Context(), "/api/jobs/x/files", t.TempDir()); muster.CodeOf(err) != muster.NotFound {
		t.Errorf("download: %v", err)
	}
}
