package client_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/client"
)

// downServer is a transport to a server that refuses connections until up, or that never answers.
type downServer struct {
	up     time.Time
	silent bool
	tries  atomic.Int32
}

func (d *downServer) RoundTrip(req *http.Request) (*http.Response, error) {
	d.tries.Add(1)
	if d.silent {
		<-req.Context().Done()
		return nil, req.Context().Err()
	}
	if time.Now().Before(d.up) {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(`{"items":[]}`)), Request: req}, nil
}

func connectOptions(d *downServer) client.Options {
	return client.Options{HTTP: &http.Client{Transport: d}, ConnectTimeout: 700 * time.Millisecond, Hint: "; a hint"}
}

func newClient(t *testing.T, o client.Options) *client.Client {
	t.Helper()
	c, err := client.New("http://server.example:8700", "x", o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A server that refuses connections is reported within a second, after several tries, by calls and streams alike.
func TestRefusedConnectionIsReportedAtOnce(t *testing.T) {
	for name, request := range map[string]func(context.Context, *client.Client) error{
		"call":   func(ctx context.Context, c *client.Client) error { _, err := c.Workers(ctx); return err },
		"stream": func(ctx context.Context, c *client.Client) error { _, err := c.Wait(ctx, 1); return err },
		"upload": func(ctx context.Context, c *client.Client) error {
			return c.PutBlob(ctx, strings.Repeat("0", 64), strings.NewReader("x"), 1, nil)
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			d := &downServer{up: time.Now().Add(time.Hour)}
			started := time.Now()
			err := request(t.Context(), newClient(t, connectOptions(d)))
			if muster.CodeOf(err) != muster.Unavailable || !strings.HasSuffix(err.Error(), "; a hint") {
				t.Errorf("%s: got %v", name, err)
			}
			if took := time.Since(started); took >= time.Second {
				t.Errorf("%s: the error took %s", name, took)
			}
			if d.tries.Load() < 2 {
				t.Errorf("%s: only one try", name)
			}
		})
	}
}

// Once a server has answered, its restart may take as long as RetryTimeout.
func TestRestartAfterTheFirstAnswerIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &downServer{}
		o := connectOptions(d)
		o.RetryTimeout = time.Minute
		c := newClient(t, o)
		if _, err := c.Workers(t.Context()); err != nil {
			t.Fatal(err)
		}
		d.up = time.Now().Add(30 * time.Second)
		if _, err := c.Workers(t.Context()); err != nil {
			t.Errorf("a call during a restart: %v", err)
		}
	})
}

// A server that accepts requests and does not answer is reported once while the command continues to wait.
func TestSilentServerIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reports atomic.Int32
		d := &downServer{silent: true}
		o := connectOptions(d)
		started := time.Now()
		o.OnSlow = func() {
			reports.Add(1)
			if took := time.Since(started); took >= time.Second {
				t.Errorf("reported after %s", took)
			}
		}
		c := newClient(t, o)
		for range 2 {
			if _, err := c.Workers(t.Context()); muster.CodeOf(err) != muster.Unavailable {
				t.Errorf("got %v", err)
			}
		}
		if n := reports.Load(); n != 1 {
			t.Errorf("reported %d times", n)
		}
	})
}
