//go:build unix

package attack

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/link"
	"github.com/muster-dev/muster/internal/link/wslink"
	"github.com/muster-dev/muster/internal/mustertest"
	"github.com/muster-dev/muster/internal/mustertest/testworker"
	"github.com/muster-dev/muster/internal/origin"
)

// awaitTimeout is the time that a test waits for an expected event.
const awaitTimeout = time.Minute

// env is a cluster under attack.
type env struct {
	*mustertest.Cluster

	t    *testing.T
	http *http.Client
}

// newEnv starts a server. Workers that tests write by hand send no heartbeats; on a busy machine a step takes more than three seconds.
func newEnv(t *testing.T) *env {
	t.Helper()
	return newEnvFor(t, mustertest.NewWith(t, t.TempDir(), mustertest.Options{Heartbeat: 4 * time.Second}))
}

// newEnvFor attacks a server that runs already.
func newEnvFor(t *testing.T, c *mustertest.Cluster) *env {
	t.Helper()
	e := &env{Cluster: c, t: t}
	e.http = &http.Client{Transport: e.transport()}
	t.Cleanup(e.http.CloseIdleConnections)
	return e
}

// transport returns connections to the server.
func (e *env) transport() *http.Transport {
	e.t.Helper()
	_, pin := auth.SplitToken(e.AdminToken)
	config, err := origin.Options{CA: pin}.TLSConfig()
	if err != nil {
		e.t.Fatal(err)
	}
	return &http.Transport{ResponseHeaderTimeout: awaitTimeout, TLSClientConfig: config}
}

// url returns the address of a path of the server.
func (e *env) url(path string) string { return e.URL + path }

// key makes a key.
func (e *env) key(role, project string, ttl time.Duration) client.MadeKey {
	e.t.Helper()
	created, err := e.Client.CreateKey(e.t.Context(), client.NewKey{Name: "a " + role, Role: role, Project: project, TTL: muster.Duration(ttl)})
	if err != nil {
		e.t.Fatal(err)
	}
	return created
}

// revoke makes a key useless.
func (e *env) revoke(id string) {
	e.t.Helper()
	if err := e.Client.RevokeKey(e.t.Context(), id); err != nil {
		e.t.Fatal(err)
	}
}

// request makes a request with a token; "" sends none.
func (e *env) request(method, path, token string, body io.Reader) *http.Request {
	e.t.Helper()
	r, err := http.NewRequestWithContext(e.t.Context(), method, e.url(path), body)
	if err != nil {
		e.t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return r
}

// do sends a request and reads the answer, which is recorded, within a minute.
func (e *env) do(r *http.Request) *httptest.ResponseRecorder {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), awaitTimeout)
	defer cancel()
	resp, err := e.http.Do(r.WithContext(ctx))
	if err != nil {
		e.t.Fatal(err)
	}
	defer resp.Body.Close()
	rec := httptest.NewRecorder()
	rec.Code, rec.HeaderMap = resp.StatusCode, resp.Header //nolint:staticcheck // to keep the headers of an answer
	if _, err := rec.Body.ReadFrom(resp.Body); err != nil {
		e.t.Fatal(err)
	}
	return rec
}

// join joins as a worker by the cluster's join token.
func (e *env) join(name string) testworker.Worker {
	e.t.Helper()
	return e.mustJoin(mustertest.JoinToken, name)
}

// dial opens a worker's session without a hello.
func (e *env) dial(worker testworker.Worker) link.WorkerConn {
	e.t.Helper()
	d := &wslink.Dialer{Server: e.url(""), Credentials: worker, HTTP: e.http}
	conn, err := d.Dial(e.t.Context())
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// hello is the hello of an ordinary worker with some free slots.
func hello(worker testworker.Worker, name string) *link.Hello {
	return &link.Hello{
		Version: link.Version, Worker: worker.Worker, Name: name,
		Offer: muster.Offer{
			Kinds:     []string{muster.KindNoop, muster.KindProcess},
			Resources: muster.Resources{CPUs: 4, Memory: 8 << 30, Disk: 8 << 30, Slots: 100},
		},
	}
}

// connect opens a worker's session, which takes tasks.
func (e *env) connect(name string) (testworker.Worker, link.WorkerConn) {
	e.t.Helper()
	worker := e.join(name)
	conn := e.dial(worker)
	e.send(conn, &link.ToServer{Hello: hello(worker, name)})
	e.receive(conn, "a welcome", func(f *link.ToWorker) bool { return f.Welcome != nil })
	e.send(conn, &link.ToServer{Ready: &link.Ready{}})
	return worker, conn
}

// send sends a frame.
func (e *env) send(conn link.WorkerConn, f *link.ToServer) {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(e.t.Context(), awaitTimeout)
	defer cancel()
	if err := conn.Send(ctx, f); err != nil {
		e.t.Fatal(err)
	}
}

// receive reads frames until one is what is awaited.
func (e *env) receive(conn link.WorkerConn, desc string, match func(*link.ToWorker) bool) *link.ToWorker {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(e.t.Context(), awaitTimeout)
	defer cancel()
	for {
		f, err := conn.Recv(ctx)
		if err != nil {
			e.t.Fatalf("waiting for %s: %v", desc, err)
		}
		if match(f) {
			return f
		}
	}
}
