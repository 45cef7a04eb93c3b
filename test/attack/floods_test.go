//go:build linux

package attack

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/link"
	"github.com/muster-dev/muster/internal/mustertest"
)

const (
	descriptors = 400 // of the server
	flooding    = 450 // connections
)

// holdConnection keeps a connection to an address open until the test ends, and opens another one when it is closed. It sends data on each,
// which may be empty.
func holdConnection(ctx context.Context, address, payload string) {
	for ctx.Err() == nil {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err == nil {
			stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
			_, _ = io.WriteString(conn, payload)
			_, _ = io.Copy(io.Discard, conn)
			stop()
			_ = conn.Close()
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// checkServing makes requests on connections of their own, as an administrator, and starts a worker. All
// together have to be done in a minute.
func (e *env) checkServing(desc string) {
	e.t.Helper()
	const requests = 20
	ctx, cancel := context.WithTimeout(e.t.Context(), awaitTimeout)
	defer cancel()
	separate := e.transport()
	separate.DisableKeepAlives = true
	c, err := client.New(e.url(""), mustertest.AdminToken, client.Options{RetryTimeout: awaitTimeout, HTTP: &http.Client{Transport: separate}})
	if err != nil {
		e.t.Fatal(err)
	}
	for n := range requests {
		if _, err := c.Whoami(ctx); err != nil {
			e.t.Fatalf("%s: %d of %d requests of an administrator were answered within %s: %v", desc, n, requests, awaitTimeout, err)
		}
	}
	e.http.CloseIdleConnections()
	// Its first connections may be replaced before their requests are complete: workers try again.
	e.StartWorker("late", e.t.TempDir(), "--engine", "none")
}

// TestConnectionFloodsDoNotBlockOtherClients opens more connections than the server may have descriptors, without a key, and
// again when they are closed. Others are served, and connected workers stay connected.
func TestConnectionFloodsDoNotBlockOtherClients(t *testing.T) { //nolint:tparallel // one flood at a time
	t.Parallel()
	for name, payload := range map[string]string{
		"silent":    "",
		"half said": "GET /healthz HT",
		"idle":      "GET /healthz HTTP/1.1\r\nHost: muster\r\n\r\n",
		"no body":   "POST /api/v1/jobs HTTP/1.1\r\nHost: muster\r\nContent-Length: 1000\r\n\r\n",

		"silent with TLS":  "",
		"half a handshake": "\x16\x03\x01\x02\x00\x01\x00\x01",
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnvFor(t, mustertest.NewWith(t, t.TempDir(), mustertest.Options{Descriptors: descriptors, Heartbeat: time.Minute, TLS: strings.Contains(name, "TLS") || strings.Contains(name, "handshake")}))
			var fleet []link.WorkerConn
			for range 50 {
				_, conn := e.connect("early")
				fleet = append(fleet, conn)
			}
			ctx, stop := context.WithCancel(t.Context())
			var flood sync.WaitGroup
			for range flooding {
				flood.Go(func() { holdConnection(ctx, e.Addr, payload) })
			}
			e.checkServing(name)
			for _, conn := range fleet {
				e.send(conn, &link.ToServer{Ping: true})
				e.receive(conn, "a pong", func(f *link.ToWorker) bool { return f.Pong })
			}
			stop()
			flood.Wait()
		})
	}
}

// TestConnectionsToOtherPortsDoNotBlockTheServer opens more connections than the server may have descriptors, without a key, to the ports of its metrics
// and of a gateway. Its own clients are served.
func TestConnectionsToOtherPortsDoNotBlockTheServer(t *testing.T) { //nolint:tparallel // one flood at a time
	t.Parallel()
	metrics, gateway := mustertest.ReservePort(t), mustertest.ReservePort(t)
	for name, address := range map[string]string{"metrics": metrics, "gateway": gateway} {
		t.Run(name, func(t *testing.T) {
			e := newEnvFor(t, mustertest.NewWith(t, t.TempDir(), mustertest.Options{Descriptors: descriptors, Heartbeat: time.Minute, Flags: []string{"--metrics", metrics, "--dialect", "qubix=" + gateway}}))
			ctx, stop := context.WithCancel(t.Context())
			var flood sync.WaitGroup
			for range flooding {
				flood.Go(func() { holdConnection(ctx, address, "GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n") })
			}
			e.checkServing("connections to the port of its " + name)
			stop()
			flood.Wait()
		})
	}
}

// holdStreams opens n streams of events with a token, from several addresses, and reads none of them. It returns the statuses of those
// that were refused, which name a time to try again.
func (e *env) holdStreams(token string, n int) (statuses []int) {
	e.t.Helper()
	refused := make(chan *http.Response, n)
	var opening sync.WaitGroup
	for i := range n {
		opening.Go(func() {
			ctx, cancel := context.WithTimeout(e.t.Context(), awaitTimeout)
			defer cancel()
			d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(2+i%4))}}
			conn, err := d.DialContext(ctx, "tcp", e.Addr)
			if err != nil {
				return
			}
			e.t.Cleanup(func() { _ = conn.Close() })
			_, _ = fmt.Fprintf(conn, "GET /api/v1/events HTTP/1.1\r\nHost: muster\r\nAuthorization: Bearer %s\r\n\r\n", token)
			_ = conn.SetReadDeadline(time.Now().Add(promptLimit))
			if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err == nil && resp.StatusCode != http.StatusOK {
				refused <- resp
			}
		})
	}
	opening.Wait()
	close(refused)
	for resp := range refused {
		statuses = append(statuses, resp.StatusCode)
		if resp.Header.Get("Retry-After") == "" {
			e.t.Errorf("a stream too many was answered %d without Retry-After", resp.StatusCode)
		}
	}
	return statuses
}

// TestRequestsOfOneKeyDoNotBlockOthers opens more streams with one viewer's key than the server may have descriptors. It gets an error when it has
// too many, and others are served.
func TestRequestsOfOneKeyDoNotBlockOthers(t *testing.T) {
	t.Parallel()
	e := newEnvFor(t, mustertest.NewWith(t, t.TempDir(), mustertest.Options{Descriptors: descriptors, Heartbeat: time.Minute}))
	statuses := e.holdStreams(e.key(string(auth.Viewer), "", 0).Secret, flooding)
	if len(statuses) == 0 || slices.ContainsFunc(statuses, func(status int) bool { return status != http.StatusTooManyRequests }) {
		t.Errorf("of %d streams of one key those were refused with the statuses %v", flooding, statuses)
	}
	e.checkServing("streams of one key")
}

// TestKeysOfAProjectDoNotBlockOthers opens as many streams as possible with keys that the administrator of a project created. The server continues
// to serve its own administrators and workers.
func TestKeysOfAProjectDoNotBlockOthers(t *testing.T) {
	t.Parallel()
	e := newEnvFor(t, mustertest.NewWith(t, t.TempDir(), mustertest.Options{Descriptors: descriptors, Heartbeat: time.Minute}))
	admin, err := client.New(e.url(""), e.key(string(auth.Admin), "alpha", 0).Secret, client.Options{HTTP: e.http})
	if err != nil {
		t.Fatal(err)
	}
	var refused []int
	for range 20 {
		k, err := admin.CreateKey(t.Context(), client.NewKey{Name: "another", Role: string(auth.Admin)})
		if err != nil {
			break // it has too many requests
		}
		refused = append(refused, e.holdStreams(k.Secret, 30)...)
	}
	if len(refused) == 0 {
		t.Error("no stream of 600 was refused")
	}
	e.checkServing("streams of keys of a project")
}

// TestReadinessFloodIsCheap requests the readiness repeatedly, without a key, while workers with the largest permitted facts are connected.
func TestReadinessFloodIsCheap(t *testing.T) {
	t.Parallel()
	e := newEnvFor(t, mustertest.NewWith(t, t.TempDir(), mustertest.Options{Flags: []string{"--rate-limit-address", "0"}}))
	const kind = `{"name":"x","description":"`
	kinds, err := json.Marshal([]json.RawMessage{json.RawMessage(kind + strings.Repeat("x", link.MaxOwnKinds-100) + `"}`)})
	if err != nil {
		t.Fatal(err)
	}
	for range 8 {
		worker := e.join("big")
		conn := e.dial(worker)
		h := hello(worker, "big")
		h.OwnKinds = kinds
		e.send(conn, &link.ToServer{Hello: h})
		e.receive(conn, "a welcome", func(f *link.ToWorker) bool { return f.Welcome != nil })
	}
	before := e.cost()
	const askers, questions = 8, 100
	var asking sync.WaitGroup
	for range askers {
		asking.Go(func() {
			for range questions {
				resp, err := e.http.Do(e.request(http.MethodGet, "/readyz", "", nil))
				if err != nil {
					t.Error(err)
					return
				}
				_ = resp.Body.Close()
			}
		})
	}
	asking.Wait()
	after := e.cost()
	t.Logf("%d questions: %s, %d MB", askers*questions, after.cpu-before.cpu, (after.memory-before.memory)>>20)
	if spent := after.cpu - before.cpu; spent > 3*time.Second {
		t.Errorf("%d questions whether the server is ready cost it %s of CPU time", askers*questions, spent)
	}
}
