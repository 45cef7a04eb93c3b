package gate

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
)

// world is a Gate that serves on this machine's loopback device.
type world struct {
	*Gate

	t       *testing.T
	address string
	end     context.CancelFunc
	ended   chan struct{}

	mu    sync.Mutex
	lines []string
}

// open starts a Gate to hosts.
func open(t *testing.T, hosts ...string) *world {
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
	w := &world{t: t, address: l.Addr().String(), end: cancel, ended: make(chan struct{})}
	w.Gate = New(rules, func(line string) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.lines = append(w.lines, line)
	})
	go func() {
		defer close(w.ended)
		w.Run(ctx, l)
	}()
	t.Cleanup(w.stop)
	return w
}

// stop ends the Gate, and returns when it has ended.
func (w *world) stop() {
	w.t.Helper()
	w.end()
	select {
	case <-w.ended:
	case <-time.After(patience):
		w.t.Fatal("the gate does not end")
	}
}

// said are the lines for the log.
func (w *world) said() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.lines)
}

// patience is how long a test waits for something that must happen.
const patience = 60 * time.Second

// client is one that uses the gate.
func (w *world) client(trust *x509.Certificate) *http.Client {
	transport := &http.Transport{
		Proxy: func(*http.Request) (*url.URL, error) { return &url.URL{Scheme: "http", Host: w.address}, nil },
	}
	if trust != nil {
		pool := x509.NewCertPool()
		pool.AddCert(trust)
		transport.TLSClientConfig = &tls.Config{RootCAs: pool, ServerName: "example.com"}
	}
	w.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// fetch returns the status and the body of a URL.
func (w *world) fetch(c *http.Client, at string) (int, string) {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, at, http.NoBody)
	if err != nil {
		w.t.Fatal(err)
	}
	r, err := c.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return r.StatusCode, string(b)
}

// dial opens a connection with the gate and says something.
func (w *world) dial(text string) net.Conn {
	w.t.Helper()
	c, err := net.Dial("tcp", w.address)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(c, text); err != nil {
		w.t.Fatal(err)
	}
	return c
}

// tunnel opens a tunnel to a listener of the test, and returns both of its ends.
func (w *world) tunnel(l net.Listener, early string) (near *net.TCPConn, far *net.TCPConn) {
	w.t.Helper()
	c := w.dial(fmt.Sprintf("CONNECT %s HTTP/1.1\r\nHost: %[1]s\r\n\r\n%s", l.Addr(), early))
	other, err := l.Accept()
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = other.Close() })
	_ = other.SetDeadline(time.Now().Add(patience))
	want := "HTTP/1.1 200 Connection established\r\n\r\n"
	b := make([]byte, len(want))
	if _, err := io.ReadFull(c, b); err != nil || string(b) != want {
		w.t.Fatalf("the answer is %q: %v", b, err)
	}
	near, ok := c.(*net.TCPConn)
	far, fok := other.(*net.TCPConn)
	if !ok || !fok {
		w.t.Fatal("not TCP")
	}
	return near, far
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

// server is one that says what it was asked.
func server(t *testing.T, secure bool) (s *httptest.Server, address string) {
	t.Helper()
	s = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		_, _ = fmt.Fprintf(w, "%s %s %s %s %q", r.Method, r.Host, r.RequestURI, r.Header.Get("Proxy-Authorization"), b)
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
	w := open(t, good, "pypi.org")
	c := w.client(nil)
	if status, body := w.fetch(c, "http://"+good+"/a%2Fb?x=%zz;y"); status != http.StatusOK || body != "GET "+good+` /a%2Fb?x=%zz;y  ""` {
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
		if status, body := w.fetch(c, "http://"+bad+"/"); status != http.StatusForbidden || body != refused+"\n" {
			t.Errorf("%d %s", status, body)
		}
	}
	if said := w.said(); !slices.Equal(said, []string{refused}) {
		t.Errorf("it says %q", said)
	}
}

func TestConnect(t *testing.T) {
	s, good := server(t, true)
	_, bad := server(t, true)
	w := open(t, good)
	c := w.client(s.Certificate())
	if status, body := w.fetch(c, "https://"+good+"/x"); status != http.StatusOK || body != "GET "+good+` /x  ""` {
		t.Errorf("%d %s", status, body)
	}
	r, err := c.Get("https://" + bad + "/")
	if err == nil {
		_ = r.Body.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "Forbidden") {
		t.Errorf("what is not allowed: %v", err)
	}
	if said := w.said(); len(said) != 1 || said[0] != "the network allowlist refused "+bad+": add it to allow_hosts" {
		t.Errorf("it says %q", said)
	}
}

// TestNamesDoNotLeadInside holds that a name which is allowed does not lead to an address that is not
// public, unless that is listed, too; by neither way.
func TestNamesDoNotLeadInside(t *testing.T) {
	_, at := server(t, false)
	_, port, err := net.SplitHostPort(at)
	if err != nil {
		t.Fatal(err)
	}
	name := "localhost:" + port
	w := open(t, name)
	status, body := w.fetch(w.client(nil), "http://"+name+"/")
	if status != http.StatusForbidden || !strings.Contains(body, "the network allowlist refused "+name+": it is at ") || !strings.Contains(body, "no public address") {
		t.Errorf("%d %s", status, body)
	}
	if got := line(t, w.dial("CONNECT "+name+" HTTP/1.1\r\n\r\n")); got != "HTTP/1.1 403 Forbidden" {
		t.Errorf("a tunnel: %s", got)
	}
	if said := w.said(); len(said) != 1 || said[0]+"\n" != body {
		t.Errorf("it says %q", said)
	}
	both := open(t, name, at, "[::1]:"+port)
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
	const dead = "127.0.0.1:1" // a port that nobody is given by chance
	w := open(t, dead, "name.invalid")
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
		c := w.dial(request)
		if want == "" {
			_ = c.Close()
			continue
		}
		if got := line(t, c); !strings.HasPrefix(got, "HTTP/1.1 "+want) {
			t.Errorf("%.60q is answered with %q, want %s", request, got, want)
		}
	}
}

func TestTunnel(t *testing.T) {
	l := listen(t)
	w := open(t, l.Addr().String())
	near, far := w.tunnel(l, "early ")
	if _, err := io.WriteString(near, "late"); err != nil {
		t.Fatal(err)
	}
	if err := near.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(far); err != nil || string(b) != "early late" {
		t.Errorf("there comes %q: %v", b, err)
	}
	if _, err := io.WriteString(far, "an answer to all of it"); err != nil {
		t.Fatal(err)
	}
	_ = far.Close()
	if b, err := io.ReadAll(near); err != nil || string(b) != "an answer to all of it" {
		t.Errorf("back comes %q: %v", b, err)
	}
}

// TestTunnelTakesNoMoreThanTheOtherSide holds that what nobody reads is not kept by the gate.
func TestTunnelTakesNoMoreThanTheOtherSide(t *testing.T) {
	l := listen(t)
	w := open(t, l.Addr().String())
	near, far := w.tunnel(l, "")
	piece, sent, most := make([]byte, 1<<20), 0, 256<<20
	for sent < most {
		_ = near.SetWriteDeadline(time.Now().Add(time.Second)) // the sockets of the kernel are full
		n, err := near.Write(piece)
		sent += n
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if sent >= most {
		t.Fatalf("%d bytes were taken that nobody read", sent)
	}
	_ = near.CloseWrite()
	if n, err := io.Copy(io.Discard, far); err != nil || n != int64(sent) {
		t.Errorf("%d of %d bytes come: %v", n, sent, err)
	}
}

func TestQuietTunnelEnds(t *testing.T) {
	l := listen(t)
	w := open(t, l.Addr().String())
	w.quiet = 50 * time.Millisecond
	near, far := w.tunnel(l, "")
	if b, err := io.ReadAll(near); err != nil || len(b) > 0 {
		t.Errorf("the task's side: %q %v", b, err)
	}
	if b, err := io.ReadAll(far); err != nil || len(b) > 0 {
		t.Errorf("the other side: %q %v", b, err)
	}
}

// TestEnd holds that nothing goes on when a task has ended: tunnels, requests, the listener.
func TestEnd(t *testing.T) {
	l := listen(t)
	started := make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(started)
		<-r.Context().Done()
	}))
	defer slow.Close()
	at := strings.TrimPrefix(slow.URL, "http://")
	w := open(t, l.Addr().String(), at)
	near, far := w.tunnel(l, "")
	asking := w.dial("GET http://" + at + "/ HTTP/1.1\r\nHost: x\r\n\r\n")
	idle := w.dial("")
	<-started
	w.stop()
	for name, c := range map[string]net.Conn{"the tunnel": near, "the tunnel's other side": far, "a request": asking, "a connection": idle} {
		if b, err := io.ReadAll(c); errors.Is(err, os.ErrDeadlineExceeded) || bytes.Contains(b, []byte("200")) {
			t.Errorf("%s goes on: %q %v", name, b, err)
		}
	}
	if c, err := net.Dial("tcp", w.address); err == nil {
		_ = c.Close()
		t.Error("it still listens")
	}
	if said := w.said(); len(said) > 0 {
		t.Errorf("it says %q", said)
	}
}

// TestCrowd holds that a task has so many connections, and that the next one is served when one of them ends.
func TestCrowd(t *testing.T) {
	l := listen(t)
	_, at := server(t, false)
	w := open(t, l.Addr().String(), at)
	var near, far *net.TCPConn
	for range maxVisitors {
		near, far = w.tunnel(l, "")
	}
	next := w.dial("GET http://" + at + "/ HTTP/1.1\r\nHost: x\r\n\r\n")
	for deadline := time.Now().Add(patience); len(w.said()) == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nobody says that it waits")
		}
	}
	_, _ = near.Close(), far.Close()
	if got := line(t, next); got != "HTTP/1.1 200 OK" {
		t.Errorf("the one that waited is answered with %q", got)
	}
}

func TestRefusalsAreBounded(t *testing.T) {
	w := open(t, "pypi.org")
	c := w.client(nil)
	for i := range 3 * maxTold {
		if status, _ := w.fetch(c, fmt.Sprintf("http://host%d.example/", i)); status != http.StatusForbidden {
			t.Fatal(status)
		}
	}
	if said := w.said(); len(said) != maxTold+1 || said[maxTold] != "the network allowlist refuses more hosts, which are not named here any more" {
		t.Errorf("it says %d lines: %q", len(said), said)
	}
}
