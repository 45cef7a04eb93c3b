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

// deafConn is an answer over a connection whose deadlines have no effect, as of some proxies: what ends a stream on it is
// the server alone.
type deafConn struct {
	*httptest.ResponseRecorder

	begun chan struct{} // closed with the first bytes
	once  sync.Once
}

func (c *deafConn) SetReadDeadline(time.Time) error  { return nil }
func (c *deafConn) SetWriteDeadline(time.Time) error { return nil }

func (c *deafConn) Write(b []byte) (int, error) {
	defer c.once.Do(func() { close(c.begun) })
	return c.ResponseRecorder.Write(b)
}

// TestStreamsOfARevokedKeyEndAtTheServer revokes the key of each kind of stream: the server stops serving it, whatever
// becomes of the connection.
func TestStreamsOfARevokedKeyEndAtTheServer(t *testing.T) {
	t.Parallel()
	var handler http.Handler
	s := apitest.Start(t, func(next http.Handler) http.Handler {
		handler = next
		return next
	})
	submit(t, s, `{"run":"x"}`)
	task := s.Worker(t, "w1").Next().Task.String()
	for i, path := range []string{"/api/v1/tasks/" + task + "/logs?follow=true", "/api/v1/tasks/" + task + "/usage?follow=true", "/api/v1/events"} {
		token := s.Key(t, auth.Viewer, "", "") // whose id is the same, and free again after each turn
		req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody)
		req.Header.Set("Authorization", "Bearer "+token)
		conn := &deafConn{ResponseRecorder: httptest.NewRecorder(), begun: make(chan struct{})}
		served := make(chan struct{})
		go func() {
			defer close(served)
			handler.ServeHTTP(conn, req)
		}()
		select {
		case <-conn.begun:
		case <-time.After(time.Minute):
			t.Fatalf("stream %d: %s does not begin", i, path)
		}
		status(t, s, request{method: "DELETE", path: "/api/v1/keys/" + token}, http.StatusNoContent)
		select {
		case <-served:
		case <-time.After(20 * time.Second): // longer than a stream is silent
			t.Errorf("%s goes on after its key was revoked", path)
		}
	}
}
