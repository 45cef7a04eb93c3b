package egress

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-dev/muster/internal/testkit"
)

// env is a Proxy on this machine's loopback device.
type env struct {
	*Proxy

	t       *testing.T
	address string
	cancel  context.CancelFunc
	done    chan struct{}

	mu    sync.Mutex
	lines []string
}

// newEnv starts a Proxy that allows hosts.
func newEnv(t *testing.T, hosts ...string) *env {
	t.Helper()
	rules, err := Parse(hosts)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	e := &env{t: t, address: l.Addr().String(), cancel: cancel, done: make(chan struct{})}
	e.Proxy = New(rules, func(line string) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.lines = append(e.lines, line)
	})
	go func() {
		defer close(e.done)
		e.Serve(ctx, l)
	}()
	t.Cleanup(e.stop)
	return e
}

// stop ends the Proxy and waits for it.
func (e *env) stop() {
	e.t.Helper()
	e.cancel()
	select {
	case <-e.done:
	case <-time.After(testTimeout):
		e.t.Fatal("the proxy does not end")
	}
}

// logged returns the lines for the log.
func (e *env) logged() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.lines)
}

// testTimeout is how long a test waits for something that must happen.
const testTimeout = 60 * time.Second

// client returns a client of the proxy.
func (e *env) client(trust *x509.Certificate) *http.Client {
	transport := &http.Transport{
		Proxy: func(*http.Request) (*url.URL, error) { return &url.URL{Scheme: "http", Host: e.address}, nil },
	}
	if trust != nil {
		pool := x509.NewCertPool()
		pool.AddCert(trust)
		transport.TLSClientConfig = &tls.Config{RootCAs: pool, ServerName: "example.com"}
	}
	e.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// fetch returns the status and the body of a URL.
func (e *env) fetch(c *http.Client, at string) (int, string) {
	e.t.Helper()
	req, err := http.NewRequestWithContext(e.t.Context(), http.MethodGet, at, http.NoBody)
	if err != nil {
		e.t.Fatal(err)
	}
	r, err := c.Do(req)
	if err != nil {
		e.t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		e.t.Fatal(err)
	}
	return r.StatusCode, string(b)
}

// dial connects to the proxy and sends a request.
func (e *env) dial(text string) net.Conn {
	e.t.Helper()
	c, err := net.Dial("tcp", e.address)
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(testTimeout))
	if _, err := io.WriteString(c, text); err != nil {
		e.t.Fatal(err)
	}
	return c
}

// tunnel opens a tunnel to a listener of the test, and returns both of its ends.
func (e *env) tunnel(l net.Listener, initial string) (client *net.TCPConn, upstream *net.TCPConn) {
	e.t.Helper()
	c := e.dial(fmt.Sprintf("CONNECT %s HTTP/1.1\r\nHost: %[1]s\r\n\r\n%s", l.Addr(), initial))
	other, err := l.Accept()
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() { _ = other.Close() })
	_ = other.SetDeadline(time.Now().Add(testTimeout))
	want := "HTTP/1.1 200 Connection established\r\n\r\n"
	b := make([]byte, len(want))
	if _, err := io.ReadFull(c, b); err != nil || string(b) != want {
		e.t.Fatalf("the answer is %q: %v", b, err)
	}
	client, ok := c.(*net.TCPConn)
	upstream, fok := other.(*net.TCPConn)
	if !ok || !fok {
		e.t.Fatal("not TCP")
	}
	return client, upstream
}

// listen listens on loopback.
func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// server is a server that echoes its requests.
func server(t *testing.T, secure bool) (s *httptest.Server, address string) {
	t.Helper()
	s = httptest.NewUnstartedServer(http.HandlerFunc(func(e http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		_, _ = fmt.Fprintf(e, "%s %s %s %s %q", r.Method, r.Host, r.RequestURI, r.Header.Get("Proxy-Authorization"), b)
	}))
	if secure {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	return s, u.Host
}

func TestForward(t *testing.T) {
	_, good := server(t, false)
	_, bad := server(t, false)
	e := newEnv(t, good, "pypi.org")
	c := e.client(nil)
	if status, body := e.fetch(c, "http://"+good+"/a%2Fb?x=%zz;y"); status != http.StatusOK || body != "GET "+good+` /a%2Fb?x=%zz;y  ""` {
		t.Errorf("%d %s", status, body)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+good+"/", struct{ io.Reader }{strings.NewReader("a body")})
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Proxy-Authorization", "mine")
	r, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if b, err := io.ReadAll(r.Body); err != nil || string(b) != "POST "+good+` /  "a body"` {
		t.Errorf("%s %v", b, err)
	}
	refused := "the network allowlist refused " + bad + ": add it to allow_hosts"
	for range 3 {
		if status, body := e.fetch(c, "http://"+bad+"/"); status != http.StatusForbidden || body != refused+"\n" {
			t.Errorf("%d %s", status, body)
		}
	}
	if logged := e.logged(); !slices.Equal(logged, []string{refused}) {
		t.Errorf("logged %q", logged)
	}
}

func TestConnect(t *testing.T) {
	s, good := server(t, true)
	_, bad := server(t, true)
	e := newEnv(t, good)
	c := e.client(s.Certificate())
	if status, body := e.fetch(c, "https://"+good+"/x"); status != http.StatusOK || body != "GET "+good+` /x  ""` {
		t.Errorf("%d %s", status, body)
	}
	r, err := c.Get("https://" + bad + "/")
	if err == nil {
		_ = r.Body.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "Forbidden") {
		t.Errorf("a host that is not allowed: %v", err)
	}
	if logged := e.logged(); len(logged) != 1 || logged[0] != "the network allowlist refused "+bad+": add it to allow_hosts" {
		t.Errorf("logged %q", logged)
	}
}

// TestNamesDoNotResolveToPrivateAddresses checks that an allowed name does not lead to an address that is not public, unless that is listed, too;
// neither by forwarding nor by a tunnel.
func TestNamesDoNotResolveToPrivateAddresses(t *testing.T) {
	_, at := server(t, false)
	_, port, err := net.SplitHostPort(at)
	if err != nil {
		t.Fatal(err)
	}
	name := "localhost:" + port
	e := newEnv(t, name)
	status, body := e.fetch(e.client(nil), "http://"+name+"/")
	if status != http.StatusForbidden || !strings.Contains(body, "the network allowlist refused "+name+": it resolves to ") || !strings.Contains(body, "not a public address") {
		t.Errorf("%d %s", status, body)
	}
	if got := line(t, e.dial("CONNECT "+name+" HTTP/1.1\r\n\r\n")); got != "HTTP/1.1 403 Forbidden" {
		t.Errorf("a tunnel: %s", got)
	}
	if logged := e.logged(); len(logged) != 1 || logged[0]+"\n" != body {
		t.Errorf("logged %q", logged)
	}
	both := newEnv(t, name, at, "[::1]:"+port)
	if status, body := both.fetch(both.client(nil), "http://"+name+"/"); status != http.StatusOK {
		t.Errorf("listed: %d %s", status, body)
	}
}

// line reads the first line of an answer.
func line(t *testing.T, c net.Conn) string {
	t.Helper()
	text, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(text)
}

func TestBadRequests(t *testing.T) {
	const dead = "127.0.0.1:1" // a port that no process gets by chance
	e := newEnv(t, dead, "name.invalid")
	for request, want := range map[string]string{
		"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n":                   "400",
		"GET https://pypi.org/ HTTP/1.1\r\nHost: pypi.org\r\n\r\n":    "400",
		"GET http://a%0Ab/ HTTP/1.1\r\nHost: x\r\n\r\n":               "400",
		"GET http://a_b..c/ HTTP/1.1\r\nHost: x\r\n\r\n":              "400",
		"GET http://[fe80::1%25lo]/ HTTP/1.1\r\nHost: x\r\n\r\n":      "400",
		"CONNECT pypi.org HTTP/1.1\r\nHost: pypi.org\r\n\r\n":         "400",
		"CONNECT pypi.org:0 HTTP/1.1\r\nHost: pypi.org\r\n\r\n":       "400",
		"CONNECT 2130706433:80 HTTP/1.1\r\nHost: x\r\n\r\n":           "400",
		"CONNECT pypi.org:443 HTTP/1.1\r\nHost: " + dead + "\r\n\r\n": "403",
		"GET http://pypi.org/ HTTP/1.1\r\nHost: " + dead + "\r\n\r\n": "403",
		"CONNECT " + dead + " HTTP/1.1\r\nHost: pypi.org\r\n\r\n":     "502",
		"GET http://" + dead + "/ HTTP/1.1\r\nHost: pypi.org\r\n\r\n": "502",
		"GET http://name.invalid/ HTTP/1.1\r\nHost: x\r\n\r\n":        "502",
		"\x05\x01\x00":             "",
		"\x16\x03\x01\x00\r\n\r\n": "400",
		"GET http://" + dead + "/ HTTP/1.1\r\n" + strings.Repeat("X: "+strings.Repeat("x", 1000)+"\r\n", 100) + "\r\n": "431",
	} {
		c := e.dial(request)
		if want == "" {
			_ = c.Close()
			continue
		}
		if got := line(t, c); !strings.HasPrefix(got, "HTTP/1.1 "+want) {
			t.Errorf("%.60q: reply %q, want %s", request, got, want)
		}
	}
}

func TestTunnel(t *testing.T) {
	l := listen(t)
	e := newEnv(t, l.Addr().String())
	client, upstream := e.tunnel(l, "early ")
	if _, err := io.WriteString(client, "late"); err != nil {
		t.Fatal(err)
	}
	if err := client.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(upstream); err != nil || string(b) != "early late" {
		t.Errorf("the server received %q: %v", b, err)
	}
	if _, err := io.WriteString(upstream, "an answer to all of it"); err != nil {
		t.Fatal(err)
	}
	_ = upstream.Close()
	if b, err := io.ReadAll(client); err != nil || string(b) != "an answer to all of it" {
		t.Errorf("the client received %q: %v", b, err)
	}
}

// TestTunnelHasBackpressure checks that the proxy does not buffer what the other side does not read.
func TestTunnelHasBackpressure(t *testing.T) {
	l := listen(t)
	e := newEnv(t, l.Addr().String())
	client, upstream := e.tunnel(l, "")
	piece, sent, limit := make([]byte, 1<<20), 0, 256<<20
	for sent < limit {
		_ = client.SetWriteDeadline(time.Now().Add(time.Second)) // the sockets of the kernel are full
		n, err := client.Write(piece)
		sent += n
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if sent >= limit {
		t.Fatalf("%d bytes were accepted that the other side did not read", sent)
	}
	_ = client.CloseWrite()
	if n, err := io.Copy(io.Discard, upstream); err != nil || n != int64(sent) {
		t.Errorf("received %d of %d bytes: %v", n, sent, err)
	}
}

func TestQuietTunnelEnds(t *testing.T) {
	l := listen(t)
	e := newEnv(t, l.Addr().String())
	e.idleTimeout = 50 * time.Millisecond
	client, upstream := e.tunnel(l, "")
	if b, err := io.ReadAll(client); err != nil || len(b) > 0 {
		t.Errorf("the task's side: %q %v", b, err)
	}
	if b, err := io.ReadAll(upstream); err != nil || len(b) > 0 {
		t.Errorf("the other side: %q %v", b, err)
	}
}

// TestClose checks that tunnels, requests and the listener end with the task.
func TestClose(t *testing.T) {
	l := listen(t)
	started := make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(e http.ResponseWriter, r *http.Request) {
		close(started)
		<-r.Context().Done()
	}))
	defer slow.Close()
	at := strings.TrimPrefix(slow.URL, "http://")
	e := newEnv(t, l.Addr().String(), at)
	client, upstream := e.tunnel(l, "")
	asking := e.dial("GET http://" + at + "/ HTTP/1.1\r\nHost: x\r\n\r\n")
	idle := e.dial("")
	<-started
	e.stop()
	for name, c := range map[string]net.Conn{"the tunnel": client, "the tunnel's other side": upstream, "a request": asking, "a connection": idle} {
		if b, err := io.ReadAll(c); errors.Is(err, os.ErrDeadlineExceeded) || bytes.Contains(b, []byte("200")) {
			t.Errorf("%s is still open: %q %v", name, b, err)
		}
	}
	if c, err := net.Dial("tcp", e.address); err == nil {
		_ = c.Close()
		t.Error("the proxy still listens")
	}
	if logged := e.logged(); len(logged) > 0 {
		t.Errorf("logged %q", logged)
	}
}

// TestConnectionLimit checks the limit of a task's connections, and that the next one is served when one of them ends.
func TestConnectionLimit(t *testing.T) {
	l := listen(t)
	_, at := server(t, false)
	e := newEnv(t, l.Addr().String(), at)
	var client, upstream *net.TCPConn
	for range maxConns {
		client, upstream = e.tunnel(l, "")
	}
	next := e.dial("GET http://" + at + "/ HTTP/1.1\r\nHost: x\r\n\r\n")
	testkit.Await(t, "the wait to be logged", func() bool { return len(e.logged()) > 0 })
	_, _ = client.Close(), upstream.Close()
	if got := line(t, next); got != "HTTP/1.1 200 OK" {
		t.Errorf("the waiting connection received %q", got)
	}
}

func TestLoggedDenialsAreBounded(t *testing.T) {
	e := newEnv(t, "pypi.org")
	c := e.client(nil)
	for i := range 3 * maxLoggedDenials {
		if status, _ := e.fetch(c, fmt.Sprintf("http://host%d.example/", i)); status != http.StatusForbidden {
			t.Fatal(status)
		}
	}
	if logged := e.logged(); len(logged) != maxLoggedDenials+1 || logged[maxLoggedDenials] != "the network allowlist refused more hosts; they are no longer logged" {
		t.Errorf("logged %d lines: %q", len(logged), logged)
	}
}
