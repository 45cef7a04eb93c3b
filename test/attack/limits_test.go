//go:build linux

package attack

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/link"
	"github.com/muster-dev/muster/internal/link/polllink"
	"github.com/muster-dev/muster/internal/link/wslink"
	"github.com/muster-dev/muster/internal/mustertest"
	"github.com/muster-dev/muster/internal/mustertest/testworker"
)

const (
	attacker = "127.0.0.2" // its address; the cluster's own clients have 127.0.0.1
	perLimit = 20          // requests per second without a valid key from one address, in tests with their own limit
)

// newLimitedEnv starts a server with low limits for addresses.
func newLimitedEnv(t *testing.T, perSecond int, flags ...string) *env {
	t.Helper()
	return newEnvFor(t, mustertest.NewWith(t, t.TempDir(), mustertest.Options{Flags: append([]string{"--rate-limit-address", strconv.Itoa(perSecond)}, flags...)}))
}

// from returns e with requests that come from another address of this machine.
func (e *env) from(address string) *env {
	e.t.Helper()
	other := *e
	transport := e.transport()
	transport.DialContext = (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}).DialContext
	transport.MaxIdleConnsPerHost = 250
	other.http = &http.Client{Transport: transport}
	e.t.Cleanup(transport.CloseIdleConnections)
	return &other
}

// flood keeps the address of e at its limit until stop is called, but for moments: the server has a limit of one request per second, and gets hundreds.
func (e *env) flood() (stop func()) {
	e.t.Helper()
	ctx, cancel := context.WithCancel(e.t.Context())
	refused := make(chan struct{})
	var once sync.Once
	var flooding sync.WaitGroup
	for range 200 {
		flooding.Go(func() {
			for ctx.Err() == nil {
				resp, err := e.http.Do(e.request(http.MethodGet, "/nothing", "", nil).WithContext(ctx)) //nolint:contextcheck // it gets ctx
				if err != nil {
					continue
				}
				_ = resp.Body.Close()
				if resp.StatusCode == http.StatusTooManyRequests {
					once.Do(func() { close(refused) })
				}
			}
		})
	}
	stop = func() {
		cancel()
		flooding.Wait()
	}
	e.t.Cleanup(stop)
	select {
	case <-refused:
	case <-time.After(awaitTimeout):
		e.t.Fatal("no request without a key was refused")
	}
	return stop
}

// guess is a token of the form that a user chooses, which no key has.
func guess(n int) string { return fmt.Sprintf("e2e-guessed-token-%06d", n) }

// joinRequest is a request to join with a token.
func (e *env) joinRequest(token string) *http.Request {
	e.t.Helper()
	body, err := json.Marshal(testworker.JoinRequest(token, "w", newKeyPair(e.t)))
	if err != nil {
		e.t.Fatal(err)
	}
	r := e.request(http.MethodPost, link.PathJoin, token, bytes.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	return r
}

// TestRequestsWithoutAKeyAreLimited sends each kind of request that has no valid key, more than an address may: it is answered with
// 429 and when to try again, whatever the request says of itself.
func TestRequestsWithoutAKeyAreLimited(t *testing.T) { //nolint:tparallel // its parts are in order
	t.Parallel()
	e := newLimitedEnv(t, perLimit)
	kinds := map[string]func(a *env, n int) *http.Request{
		"unknown path": func(a *env, _ int) *http.Request { return a.request(http.MethodGet, "/nothing", "", nil) },
		"no key":       func(a *env, _ int) *http.Request { return a.request(http.MethodGet, "/api/v1/jobs", "", nil) },
		"open path":    func(a *env, _ int) *http.Request { return a.request(http.MethodGet, "/healthz", "", nil) },
		"dashboard":    func(a *env, _ int) *http.Request { return a.request(http.MethodGet, "/", "", nil) },
		"bad JSON": func(a *env, _ int) *http.Request {
			return a.request(http.MethodPost, "/api/v1/jobs", "", strings.NewReader(`{"tasks":`))
		},
		"another scheme": func(a *env, _ int) *http.Request {
			r := a.request(http.MethodGet, "/api/v1/jobs", "", nil)
			r.Header.Set("Authorization", "Basic YTpi")
			return r
		},
		"a forged source": func(a *env, n int) *http.Request {
			r := a.request(http.MethodGet, "/nothing", "", nil)
			for _, name := range []string{"X-Forwarded-For", "X-Real-Ip", "Forwarded"} {
				r.Header.Set(name, fmt.Sprintf("10.0.%d.%d", n/256, n%256))
			}
			return r
		},
		"a page of another site": func(a *env, _ int) *http.Request {
			r := a.request(http.MethodPost, "/api/v1/jobs", "", strings.NewReader(`{}`))
			r.AddCookie(&http.Cookie{Name: "muster_session", Value: "eA"})
			r.Header.Set("Sec-Fetch-Site", "cross-site")
			return r
		},
	}
	i := 0
	for name, kind := range kinds {
		i++
		address := fmt.Sprintf("127.0.1.%d", i)
		t.Run(name, func(t *testing.T) {
			a := newEnvFor(t, e.Cluster).from(address)
			refused := 0
			for n := range 40 * perLimit {
				if refused == 5 {
					break
				}
				rec := a.do(kind(a, n))
				if rec.Code != http.StatusTooManyRequests {
					continue
				}
				refused++
				var problem struct {
					Code   muster.Code `json:"code"`
					Detail string      `json:"detail"`
				}
				seconds, err := strconv.Atoi(rec.Header().Get("Retry-After"))
				if json.Unmarshal(rec.Body.Bytes(), &problem) != nil || problem.Code != muster.Unavailable || !strings.Contains(problem.Detail, "try again in") || err != nil || seconds < 1 {
					t.Fatalf("%d %v %s", rec.Code, rec.Header(), rec.Body)
				}
			}
			if refused == 0 {
				t.Errorf("%d requests from one address were all answered", 40*perLimit)
			}
		})
	}
	if rec := e.do(e.request(http.MethodGet, "/healthz", "", nil)); rec.Code != http.StatusOK {
		t.Errorf("another address: %d %s", rec.Code, rec.Body)
	}
}

// TestClientsBehindOneAddressDoNotLimitEachOther keeps an address at its limit: clients with valid keys of the same address, also with keys
// that they use for the first time, and workers over both transports are served.
func TestClientsBehindOneAddressDoNotLimitEachOther(t *testing.T) {
	t.Parallel()
	e := newLimitedEnv(t, 1)
	a := e.from(attacker)
	keys := []string{mustertest.AdminToken}
	for range 10 {
		keys = append(keys, e.key(string(auth.Viewer), "", 0).Secret)
	}
	worker := e.join("polling")
	a.flood()
	poll, err := (&polllink.Dialer{Server: e.url(""), Credentials: worker, HTTP: a.http}).Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer poll.Close()
	e.send(poll, &link.ToServer{Hello: hello(worker, "polling")})
	e.receive(poll, "a welcome", func(f *link.ToWorker) bool { return f.Welcome != nil })
	socketWorker := e.join("socket")
	socket, err := (&wslink.Dialer{Server: e.url(""), Credentials: socketWorker, HTTP: a.http}).Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	e.send(socket, &link.ToServer{Hello: hello(socketWorker, "socket")})
	e.receive(socket, "a welcome", func(f *link.ToWorker) bool { return f.Welcome != nil })
	for _, key := range keys {
		if rec := a.do(e.request(http.MethodGet, "/api/v1/whoami", key, nil)); rec.Code != http.StatusOK {
			t.Fatalf("a valid key: %d %s", rec.Code, rec.Body)
		}
		for _, conn := range []link.WorkerConn{poll, socket} {
			e.send(conn, &link.ToServer{Ping: true})
			e.receive(conn, "a pong", func(f *link.ToWorker) bool { return f.Pong })
		}
	}
}

// TestGuessedJoinTokensAreSlowedDown guesses one token after another: the answers take longer and longer.
func TestGuessedJoinTokensAreSlowedDown(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	a := e.from(attacker)
	start := time.Now()
	for n := range 14 {
		if rec := a.do(a.joinRequest(guess(n))); rec.Code != http.StatusUnauthorized {
			t.Fatalf("guess %d: %d %s", n, rec.Code, rec.Body)
		}
	}
	// the fifth takes 10 ms, each further one about twice as long, 2 s at most
	if took := time.Since(start); took < 3*time.Second {
		t.Errorf("14 guesses took %s", took)
	}
	start = time.Now()
	if rec := e.do(e.joinRequest(guess(0))); rec.Code != http.StatusUnauthorized || time.Since(start) > 2*time.Second {
		t.Errorf("another address waited %s: %d", time.Since(start), rec.Code)
	}
}

// TestGuessesAtOnceAreRefused guesses with many connections at once: few answers are delayed, others are refused without delay, and the server
// serves others.
func TestGuessesAtOnceAreRefused(t *testing.T) {
	t.Parallel()
	e := newEnvFor(t, mustertest.NewWith(t, t.TempDir(), mustertest.Options{Descriptors: descriptors, Heartbeat: time.Minute}))
	a := e.from(attacker)
	var mu sync.Mutex
	statuses := map[int]int{}
	var guessing sync.WaitGroup
	for client := range 100 {
		guessing.Go(func() {
			for n := range 5 {
				resp, err := a.http.Do(a.joinRequest(guess(100*client + n)))
				if err != nil {
					continue // too many connections
				}
				_ = resp.Body.Close()
				if resp.StatusCode == http.StatusTooManyRequests && resp.Header.Get("Retry-After") == "" {
					t.Error("a refusal does not say when to try again")
				}
				mu.Lock()
				statuses[resp.StatusCode]++
				mu.Unlock()
			}
		})
	}
	e.checkServing("while tokens are guessed")
	guessing.Wait()
	if statuses[http.StatusTooManyRequests] < 300 || statuses[http.StatusUnauthorized] > 100 {
		t.Errorf("500 guesses at once: %v", statuses)
	}
}

// TestGuessingFindsNothingBeyondTheLimit sends the right token, which a user chose, after too many wrong ones: it is refused like them, but not from
// another address, nor after it was used.
func TestGuessingFindsNothingBeyondTheLimit(t *testing.T) {
	t.Parallel()
	for try := 1; ; try++ {
		e := newLimitedEnv(t, 1)
		a := e.from(attacker)
		stop := a.flood()
		found := a.do(a.joinRequest(mustertest.JoinToken)).Code
		if found == http.StatusOK && try == 1 {
			stop()
			continue // it came in the moment when the address may send its request of that second
		}
		if found != http.StatusTooManyRequests {
			t.Errorf("the right token: %d", found)
		}
		if rec := e.do(e.joinRequest(mustertest.JoinToken)); rec.Code != http.StatusOK {
			t.Errorf("the right token of another address: %d %s", rec.Code, rec.Body)
		}
		if rec := a.do(a.joinRequest(mustertest.JoinToken)); rec.Code != http.StatusOK {
			t.Errorf("a token that is in use: %d %s", rec.Code, rec.Body)
		}
		return
	}
}

// TestGuessesAreCountedWhereverTheyAreSent guesses keys in each place of a request where a key may be.
func TestGuessesAreCountedWhereverTheyAreSent(t *testing.T) {
	t.Parallel()
	gateway := mustertest.ReservePort(t)
	e := newLimitedEnv(t, perLimit, "--dialect", "qubix="+gateway+",key=required")
	for i, c := range []struct {
		where string
		send  func(a *env, n int) *http.Request
	}{
		{"header", func(a *env, n int) *http.Request {
			return a.request(http.MethodGet, "/api/v1/jobs", guess(n), nil)
		}},
		{"cookie", func(a *env, n int) *http.Request {
			r := a.request(http.MethodGet, "/api/v1/jobs", "", nil)
			r.AddCookie(&http.Cookie{Name: "muster_session", Value: base64.RawURLEncoding.EncodeToString([]byte(guess(n)))})
			return r
		}},
		{"sign-in", func(a *env, n int) *http.Request {
			r := a.request(http.MethodPost, "/api/v1/session", "", strings.NewReader(`{"token":"`+guess(n)+`"}`))
			r.Header.Set("Content-Type", "application/json")
			return r
		}},
		{"worker's session", func(a *env, n int) *http.Request { return a.request(http.MethodGet, link.PathSocket, guess(n), nil) }},
		{"a worker's generated key", func(a *env, n int) *http.Request {
			var random [auth.RandomBytes]byte
			random[0], random[1] = byte(n), byte(n>>8)
			return a.request(http.MethodGet, link.PathSocket, auth.NewToken(auth.Worker, random), nil)
		}},
		{"gateway's path", func(a *env, n int) *http.Request {
			r := a.request(http.MethodGet, "/k/"+guess(n)+"/api/jobs/pending", "", nil)
			r.URL.Host, r.Host = gateway, ""
			return r
		}},
	} {
		t.Run(c.where, func(t *testing.T) {
			t.Parallel()
			a := newEnvFor(t, e.Cluster).from(fmt.Sprintf("127.0.3.%d", i+1))
			const guesses = 200
			var mu sync.Mutex
			statuses := map[int]int{}
			var guessing sync.WaitGroup
			for g := range 40 {
				guessing.Go(func() {
					for n := range guesses / 40 {
						resp, err := a.http.Do(c.send(a, 1000*g+n))
						if err != nil {
							t.Error(err)
							return
						}
						_ = resp.Body.Close()
						mu.Lock()
						statuses[resp.StatusCode]++
						mu.Unlock()
					}
				})
			}
			guessing.Wait()
			if statuses[http.StatusTooManyRequests] < guesses/2 || statuses[http.StatusUnauthorized]+statuses[http.StatusTooManyRequests] != guesses {
				t.Errorf("%d guesses: %v", guesses, statuses)
			}
		})
	}
}

// TestRequestsOfAKeyAreLimited makes more requests with a key than it may: it is refused with 429, and others are served.
func TestRequestsOfAKeyAreLimited(t *testing.T) {
	t.Parallel()
	e := newEnvFor(t, mustertest.NewWith(t, t.TempDir(), mustertest.Options{Flags: []string{"--rate-limit", "50"}}))
	busy, other := e.key(string(auth.Viewer), "", 0).Secret, e.key(string(auth.Viewer), "", 0).Secret
	_, worker := e.connect("w")
	var mu sync.Mutex
	refused := 0
	var requests sync.WaitGroup
	for range 10 {
		requests.Go(func() {
			for range 50 {
				rec, err := e.http.Do(e.request(http.MethodGet, "/api/v1/whoami", busy, nil))
				if err != nil {
					t.Error(err)
					return
				}
				_ = rec.Body.Close()
				if rec.StatusCode == http.StatusTooManyRequests && rec.Header.Get("Retry-After") != "" {
					mu.Lock()
					refused++
					mu.Unlock()
				}
			}
		})
	}
	requests.Wait()
	if refused == 0 {
		t.Error("500 requests with one key were all answered")
	}
	if rec := e.do(e.request(http.MethodGet, "/api/v1/whoami", other, nil)); rec.Code != http.StatusOK {
		t.Errorf("another key: %d %s", rec.Code, rec.Body)
	}
	e.send(worker, &link.ToServer{Ping: true})
	e.receive(worker, "a pong", func(f *link.ToWorker) bool { return f.Pong })
}

// TestHonestSubmissionsAreNotLimited submits as fast as 16 clients can, with the default limits.
func TestHonestSubmissionsAreNotLimited(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	c, err := client.New(e.url(""), mustertest.AdminToken, client.Options{RetryTimeout: time.Nanosecond, HTTP: &http.Client{Transport: e.transport()}})
	if err != nil {
		t.Fatal(err)
	}
	var clients sync.WaitGroup
	for range 16 {
		clients.Go(func() {
			for range 60 {
				if _, err := c.Submit(t.Context(), &muster.Spec{Tasks: []muster.TaskSpec{{Kind: muster.KindNoop}}}, client.SubmitOptions{}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	clients.Wait()
}

// TestLimitedAnswersHaveSecurityHeaders looks at the headers of a refusal, and that refusals are counted.
func TestLimitedAnswersHaveSecurityHeaders(t *testing.T) {
	t.Parallel()
	e := newLimitedEnv(t, 1)
	a := e.from(attacker)
	a.flood()
	for _, r := range []*http.Request{a.request(http.MethodGet, "/", "", nil), a.request(http.MethodGet, "/api/v1/jobs", "", nil), a.request(http.MethodGet, "/api/v1/jobs", guess(0), nil)} {
		rec := a.do(r)
		if rec.Code != http.StatusTooManyRequests {
			rec = a.do(r.Clone(t.Context())) // it came in the moment of the second
		}
		if h := rec.Header(); rec.Code != http.StatusTooManyRequests || h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Content-Security-Policy") == "" || h.Get("X-Frame-Options") != "DENY" || h.Get("Referrer-Policy") != "no-referrer" {
			t.Errorf("%s: %d %v", r.URL, rec.Code, h)
		}
	}
	metrics := e.do(e.request(http.MethodGet, "/metrics", mustertest.AdminToken, nil)).Body.String()
	if !strings.Contains(metrics, `muster_http_requests_limited_total{reason="address"}`) || strings.Contains(metrics, `muster_http_requests_limited_total{reason="address"} 0`) {
		t.Error("the refused requests are not counted")
	}
}

// TestOwnAuthorityDoesNotLockOutBrowsers looks for HSTS, which would forbid a visitor to accept the certificate of the server's own authority.
// test/e2e TestTLSFilesAreReplaced has the header with a certificate of another authority.
func TestOwnAuthorityDoesNotLockOutBrowsers(t *testing.T) {
	t.Parallel()
	e := newEnvFor(t, mustertest.NewWith(t, t.TempDir(), mustertest.Options{TLS: true}))
	for _, path := range []string{"/", "/nothing", "/api/v1/jobs", "/ca.crt"} {
		if h := e.do(e.request(http.MethodGet, path, "", nil)).Header(); h.Get("Strict-Transport-Security") != "" {
			t.Errorf("%s: %v", path, h)
		}
	}
}

// TestStreamsOfAKeyAreLimited opens streams of all kinds with one key: beyond 100 they are refused, and another key has its own.
func TestStreamsOfAKeyAreLimited(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	task := e.attempt().Task.String()
	busy, other := e.key(string(auth.Viewer), "", 0).Secret, e.key(string(auth.Viewer), "", 0).Secret
	paths := []string{"/api/v1/events", "/api/v1/tasks/" + task + "/logs?follow=true", "/api/v1/tasks/" + task + "/usage?follow=true"}
	open := func(path, key string) int {
		t.Helper()
		resp, err := e.http.Do(e.request(http.MethodGet, path, key, nil))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = resp.Body.Close() })
		if resp.StatusCode == http.StatusOK {
			_, _ = io.ReadFull(resp.Body, make([]byte, 1))
		}
		return resp.StatusCode
	}
	for n := range 100 {
		if status := open(paths[n%len(paths)], busy); status != http.StatusOK {
			t.Fatalf("stream %d: %d", n+1, status)
		}
	}
	for _, path := range paths {
		if status := open(path, busy); status != http.StatusTooManyRequests {
			t.Errorf("a further stream of %s: %d", path, status)
		}
		if status := open(path, other); status != http.StatusOK {
			t.Errorf("%s with another key: %d", path, status)
		}
	}
}

// TestClientsWaitAsTheServerSays submits with a key at its limit: the client waits and succeeds.
func TestClientsWaitAsTheServerSays(t *testing.T) {
	t.Parallel()
	e := newEnvFor(t, mustertest.NewWith(t, t.TempDir(), mustertest.Options{Flags: []string{"--rate-limit", "1"}}))
	submitter := e.key(string(auth.Submitter), "", 0).Secret
	c, err := client.New(e.url(""), submitter, client.Options{HTTP: &http.Client{Transport: e.transport()}, RetryTimeout: awaitTimeout})
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	for range 4 {
		if _, err := c.Submit(t.Context(), &muster.Spec{Tasks: []muster.TaskSpec{{Kind: muster.KindNoop}}}, client.SubmitOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(start); took < 2*time.Second {
		t.Errorf("four submissions at one request per second took %s", took)
	}
}

// TestLimitsCanBeSwitchedOff sends more than the defaults allow to a server without limits.
func TestLimitsCanBeSwitchedOff(t *testing.T) {
	t.Parallel()
	e := newEnvFor(t, mustertest.NewWith(t, t.TempDir(), mustertest.Options{Flags: []string{"--rate-limit", "0", "--rate-limit-address", "0"}}))
	var requests sync.WaitGroup
	for range 16 {
		requests.Go(func() {
			for range 150 {
				resp, err := e.http.Do(e.request(http.MethodGet, "/healthz", "", nil))
				if err != nil {
					t.Error(err)
					return
				}
				_ = resp.Body.Close()
				if resp.StatusCode != http.StatusOK {
					t.Errorf("%d", resp.StatusCode)
					return
				}
			}
		})
	}
	requests.Wait()
}
