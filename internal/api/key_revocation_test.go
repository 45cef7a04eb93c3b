package api_test

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/muster-dev/muster/internal/api/apitest"
	"github.com/muster-dev/muster/internal/auth"
)

// noDeadlineConn is an answer over a connection whose deadlines have no effect, as with some proxies: only the server can end a
// stream on it.
type noDeadlineConn struct {
	*httptest.ResponseRecorder

	started chan struct{} // closed with the first bytes
	once    sync.Once
}

func (c *noDeadlineConn) SetReadDeadline(time.Time) error  { return nil }
func (c *noDeadlineConn) SetWriteDeadline(time.Time) error { return nil }

func (c *noDeadlineConn) Write(b []byte) (int, error) {
	defer c.once.Do(func() { close(c.started) })
	return c.ResponseRecorder.Write(b)
}

// TestRevokedKeyEndsItsStreams revokes the key of each kind of stream: the server stops serving it, even if the
// connection stays open.
func TestRevokedKeyEndsItsStreams(t *testing.T) {
	t.Parallel()
	var handler http.Handler
	s := apitest.Start(t, func(next http.Handler) http.Handler {
		handler = next
		return next
	})
	submit(t, s, `{"run":"x"}`)
	task := s.ConnectWorker(t, "w1").StartNext().Task.String()
	for i, path := range []string{"/api/v1/tasks/" + task + "/logs?follow=true", "/api/v1/tasks/" + task + "/usage?follow=true", "/api/v1/events"} {
		token := s.CreateKey(t, auth.Viewer, "", "") // whose id is the same, and free again after each turn
		req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody)
		req.Header.Set("Authorization", "Bearer "+token)
		conn := &noDeadlineConn{ResponseRecorder: httptest.NewRecorder(), started: make(chan struct{})}
		served := make(chan struct{})
		go func() {
			defer close(served)
			handler.ServeHTTP(conn, req)
		}()
		select {
		case <-conn.started:
		case <-time.After(time.Minute):
			t.Fatalf("stream %d: %s does not start", i, path)
		}
		expectStatus(t, s, request{method: "DELETE", path: "/api/v1/keys/" + token}, http.StatusNoContent)
		select {
		case <-served:
		case <-time.After(20 * time.Second): // longer than a stream is silent
			t.Errorf("%s continues after its key was revoked", path)
		}
	}
}
