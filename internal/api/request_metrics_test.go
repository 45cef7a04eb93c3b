package api_test

import (
	"context"
	"net/http"
	"slices"
	"testing"

	"github.com/muster-dev/muster/internal/api/apitest"
	"github.com/muster-dev/muster/internal/auth"
)

// TestMetricsRequirePermission checks that metrics require a key that may read workers and all projects.
func TestMetricsRequirePermission(t *testing.T) {
	s := apitest.Start(t, nil)
	for token, want := range map[string]int{
		"none":                              http.StatusUnauthorized,
		"mst_viewer_unknown":                http.StatusUnauthorized,
		s.CreateKey(t, auth.Viewer, "", ""): http.StatusOK,
		s.CreateKey(t, auth.Viewer, "vision", ""):      http.StatusForbidden,
		s.CreateKey(t, auth.Submitter, "", ""):         http.StatusOK,
		s.CreateKey(t, auth.Join, "", ""):              http.StatusForbidden,
		s.CreateKey(t, auth.Worker, "", "w-123456789"): http.StatusForbidden,
	} {
		body := expectStatus(t, s, request{method: "GET", path: "/metrics", token: token}, want)
		if ok := string(body) == "up 1\n"; ok != (want == http.StatusOK) {
			t.Errorf("with %s: %s", token, body)
		}
	}
}

// TestRequestsAreMeasuredByRoute checks that labels are routes and not paths of clients.
func TestRequestsAreMeasuredByRoute(t *testing.T) {
	s := apitest.Start(t, nil)
	submit(t, s, `{"kind":"noop"}`)
	for _, q := range []request{
		{method: "GET", path: "/api/v1/jobs/1"}, {method: "GET", path: "/api/v1/jobs/77"}, {method: "GET", path: "/api/v1/jobs/1", token: "none"},
		{method: "GET", path: "/api/v1/tasks/1.0/artifacts/made/up"}, {method: "GET", path: "/no/such/page"}, {method: "PUT", path: "/api/v1/jobs"},
	} {
		send(t, s, q)
	}
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/api/v1/events", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+apitest.AdminToken)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := resp.Body.Read(make([]byte, 1)); err != nil { // it streams through the recorder
		t.Error(err)
	}
	cancel()
	_ = resp.Body.Close()
	want := []string{
		"POST /api/v1/jobs 201", "GET /api/v1/jobs/{job} 200", "GET /api/v1/jobs/{job} 404", "GET /api/v1/jobs/{job} 401",
		"GET /api/v1/tasks/{task}/artifacts/{name...} 404", "GET other 404", "PUT other 405", "GET /api/v1/events 200 stream",
	}
	eventuallyTrue(t, func() bool { return len(s.AnsweredRequests()) >= len(want) })
	if got := s.AnsweredRequests(); !slices.Equal(got, want) {
		t.Errorf("the requests are %q, want %q", got, want)
	}
}
