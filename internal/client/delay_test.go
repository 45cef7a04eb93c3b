package client_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/client"
)

// busyServer is a transport to a server that refuses requests with 429, and processes the first that comes at free or later.
type busyServer struct {
	free       time.Time
	retryAfter string
	requests   []*http.Request
}

func (b *busyServer) RoundTrip(req *http.Request) (*http.Response, error) {
	b.requests = append(b.requests, req)
	answer := &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(`{}`)), Request: req}
	if time.Now().Before(b.free) {
		answer.StatusCode = http.StatusTooManyRequests
		answer.Header.Set("Retry-After", b.retryAfter)
		answer.Body = io.NopCloser(strings.NewReader(`{"code":"unavailable","detail":"too many requests"}`))
	}
	return answer, nil
}

// A call is repeated when the server says, not earlier, with the same idempotency key, and OnDelay is called for a long pause.
func TestCallsWaitAsTheServerSays(t *testing.T) {
	for name, request := range map[string]func(context.Context, *client.Client) error{
		"read": func(ctx context.Context, c *client.Client) error { _, err := c.Whoami(ctx); return err },
		"submission": func(ctx context.Context, c *client.Client) error {
			_, err := c.Submit(ctx, &muster.Spec{}, client.SubmitOptions{})
			return err
		},
		"upload": func(ctx context.Context, c *client.Client) error {
			return c.PutBlob(ctx, strings.Repeat("0", 64), strings.NewReader("x"), 1, nil)
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			server := &busyServer{free: start.Add(3 * time.Second), retryAfter: "3"}
			var named []time.Duration
			c := newClient(t, client.Options{HTTP: &http.Client{Transport: server}, OnDelay: func(d time.Duration) { named = append(named, d) }})
			if err := request(t.Context(), c); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if took := time.Since(start); took < 3*time.Second || took > 4*time.Second || len(server.requests) != 2 {
				t.Errorf("%s: %d requests in %s", name, len(server.requests), took)
			}
			if len(named) != 1 || named[0] != 3*time.Second {
				t.Errorf("%s: OnDelay was called with %v", name, named)
			}
			if first, second := server.requests[0].Header.Get("Idempotency-Key"), server.requests[1].Header.Get("Idempotency-Key"); first != second || (name == "submission") != (first != "") {
				t.Errorf("%s: idempotency keys %q and %q", name, first, second)
			}
		})
	}
}

// A pause beyond the time that a call may take is reported at once.
func TestCallsDoNotWaitForever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		server := &busyServer{free: start.Add(time.Hour), retryAfter: "3600"}
		_, err := newClient(t, client.Options{HTTP: &http.Client{Transport: server}}).Whoami(t.Context())
		if muster.CodeOf(err) != muster.Unavailable || time.Since(start) > 0 || len(server.requests) != 1 {
			t.Errorf("%d requests in %s: %v", len(server.requests), time.Since(start), err)
		}
	})
}
