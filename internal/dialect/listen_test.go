package dialect_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/certs"
	"github.com/muster-dev/muster/internal/dialect"
	"github.com/muster-dev/muster/internal/origin"
	"github.com/muster-dev/muster/internal/testkit"
)

const (
	joinKey   = "mst_join_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	submitKey = "mst_submitter_bbbbbbbbbbbbbbbbbbbbbbbbbbbb"
)

// newServer answers requests about keys.
func newServer(t *testing.T) dialect.Server {
	t.Helper()
	pipe := dialect.NewPipe()
	s := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		role := map[string]string{"Bearer " + joinKey: "join", "Bearer " + submitKey: "submitter"}[r.Header.Get("Authorization")]
		if role == "" {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, `{"status":401,"code":"unauthenticated","detail":"the API key is not known here"}`)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]string{"key": "k-" + role, "name": r.RemoteAddr, "role": role, "version": "1"})
	})}
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(pipe) }()
	t.Cleanup(func() { _ = s.Close(); <-done })
	return dialect.Connect(pipe, joinKey, submitKey, nil)
}

// logBuffer is all that was logged.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// TestListenerWithTLS serves a port with TLS: its URL says so, and a request without TLS does not reach the gateway.
func TestListenerWithTLS(t *testing.T) {
	own, err := certs.Open(certs.Config{Own: true}, t.TempDir(), slog.New(slog.DiscardHandler))
	testkit.NoError(t, err)
	served := make(chan string, 2)
	url := serveWith(t, dialect.Config{Name: "one", Address: "127.0.0.1:0", TLS: true}, own.TLSConfig(), &logBuffer{}, nil, func(_ http.ResponseWriter, r *http.Request) { served <- r.URL.Path })
	plain, ok := strings.CutPrefix(url, "https://")
	if !ok {
		t.Fatalf("the URL is %s", url)
	}
	resp, err := http.Get("http://" + plain + "/plain")
	testkit.NoError(t, err)
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusBadRequest {
		t.Errorf("without TLS the answer is %d", resp.StatusCode)
	}
	h, err := origin.NewClient(origin.Options{CA: own.Pin()})
	testkit.NoError(t, err)
	defer h.CloseIdleConnections()
	resp, err = h.Get(url + "/encrypted")
	testkit.NoError(t, err)
	defer resp.Body.Close()
	if got := <-served; got != "/encrypted" || len(served) > 0 {
		t.Errorf("the gateway got %s and %d more", got, len(served))
	}
}

// serveEcho serves a handler that returns the path and the caller of a request.
func serveEcho(t *testing.T, required bool, log *logBuffer, change func(*dialect.Listener)) string {
	t.Helper()
	return serve(t, required, log, change, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/panic" {
			panic("a bug")
		}
		caller := dialect.CallerFromContext(r.Context())
		canJoin := "no"
		if caller.CanJoinWorkers() == nil {
			canJoin = "yes"
		}
		var v any
		if r.Method == http.MethodPost {
			if err := dialect.Decode(r, 10, &v); err != nil {
				dialect.WriteJSON(w, http.StatusBadRequest, string(muster.CodeOf(err)))
				return
			}
		}
		dialect.WriteJSON(w, http.StatusOK, []string{r.URL.EscapedPath(), caller.Role, canJoin})
	})
}

func serve(t *testing.T, required bool, log *logBuffer, change func(*dialect.Listener), h http.HandlerFunc) string {
	t.Helper()
	return serveWith(t, dialect.Config{Name: "one", Address: "127.0.0.1:0", KeyRequired: required}, nil, log, change, h)
}

func serveWith(t *testing.T, config dialect.Config, encryption *tls.Config, log *logBuffer, change func(*dialect.Listener), h http.HandlerFunc) string {
	t.Helper()
	deps := dialect.Deps{
		Config: config, Server: newServer(t), TLS: encryption,
		Log: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	l, err := dialect.Listen(t.Context(), deps)
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(l)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- l.Serve(ctx, h)
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("it stopped with %v", err)
		}
	})
	return l.URL()
}

func request(t *testing.T, method, url, body string, header ...string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.Status[:3] + " " + strings.TrimSpace(string(b))
}

// A key comes from the path, the header or Listener.Token; it is never logged.
func TestKeys(t *testing.T) {
	t.Parallel()
	log := new(logBuffer)
	setToken := func(l *dialect.Listener) { l.Token = func(r *http.Request) string { return r.Header.Get("X-Key") } }
	required, open := serveEcho(t, true, log, setToken), serveEcho(t, false, log, setToken)
	for _, c := range []struct{ url, name, value, want string }{
		{required + "/a", "", "", `401 `},
		{required + "/k/" + joinKey + "/a/b", "", "", `200 ["/a/b","join","yes"]`},
		{required + "/k/" + joinKey + "/a%2Fb/c", "", "", `200 ["/a%2Fb/c","join","yes"]`},
		{required + "/k/" + joinKey, "", "", `200 ["/","join","yes"]`},
		{required + "/k/" + joinKey + "//a/b", "", "", `200 ["/a/b","join","yes"]`},
		{required + "/k/" + joinKey + "//a%2Fb/c", "", "", `200 ["/a%2Fb/c","join","yes"]`},
		{required + "/k/" + submitKey + "/a", "", "", `200 ["/a","submitter","no"]`},
		{required + "/k/mst_join_wrong/a", "", "", `401 `},
		{required + "/k//a", "", "", `401 `},
		{required + "/a", "Authorization", "Bearer " + joinKey, `200 ["/a","join","yes"]`},
		{required + "/a", "Authorization", "Bearer something-else", `401 `},
		{required + "/a", "X-Key", joinKey, `200 ["/a","join","yes"]`},
		{open + "/a", "", "", `200 ["/a","","yes"]`},
		{open + "/a", "Authorization", "Bearer something-else", `200 ["/a","","yes"]`},
		{open + "/k/" + submitKey + "/a", "", "", `200 ["/a","submitter","no"]`},
		{open + "/k/mst_join_wrong/a", "", "", `401 `},
	} {
		header := []string{c.name, c.value}
		if c.name == "" {
			header = nil
		}
		if got := request(t, http.MethodGet, c.url, "", header...); !strings.HasPrefix(got, c.want) {
			t.Errorf("%s %s: %s, want %s", c.url, c.name, got, c.want)
		}
	}
	if got := request(t, http.MethodGet, open+"/k/"+joinKey+"/panic", ""); !strings.HasPrefix(got, "500 ") {
		t.Errorf("a panic is answered with %s", got)
	}
	if text := log.String(); !strings.Contains(text, "a bug") || strings.Contains(text, joinKey) || strings.Contains(text, submitKey) {
		t.Errorf("the log has keys, or no panic: %s", text)
	}
}

func TestDecode(t *testing.T) {
	t.Parallel()
	url := serveEcho(t, false, new(logBuffer), nil)
	for body, want := range map[string]string{`{"a":1}`: "200", "": `400 "invalid"`, "{": `400 "invalid"`, "1 2": `400 "invalid"`, strings.Repeat("1", 11): `400 "too_large"`} {
		if got := request(t, http.MethodPost, url, body); !strings.HasPrefix(got, want) {
			t.Errorf("%q is answered with %s, want %s", body, got, want)
		}
	}
}

// The error for a port in use names the option.
func TestPortTaken(t *testing.T) {
	t.Parallel()
	url := serveEcho(t, false, new(logBuffer), nil)
	_, err := dialect.Listen(t.Context(), dialect.Deps{Config: dialect.Config{Name: "one", Address: strings.TrimPrefix(url, "http://")}})
	if muster.CodeOf(err) != muster.Conflict || !strings.Contains(err.Error(), "--dialect one=ADDRESS") {
		t.Errorf("error is %v", err)
	}
}

// Connections have the remote address of the foreign worker.
func TestHTTPFrom(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	for _, addr := range []string{"192.0.2.7", "2001:db8::1"} {
		s.HTTP = s.HTTPFrom(netip.MustParseAddr(addr))
		c, err := s.Client("")
		if err != nil {
			t.Fatal(err)
		}
		whoami, err := c.Whoami(t.Context())
		if err != nil || !strings.Contains(whoami.Name, addr) || whoami.Role != "submitter" {
			t.Errorf("the server saw %+v, %v", whoami, err)
		}
	}
	if _, err := s.Authorize(t.Context(), ""); muster.CodeOf(err) != muster.Unauthenticated {
		t.Errorf("no key: %v", err)
	}
}

// A token that is longer than all keys is refused without a request.
func TestLongToken(t *testing.T) {
	t.Parallel()
	pipe := dialect.NewPipe()
	if err := pipe.Close(); err != nil {
		t.Fatal(err)
	}
	s := dialect.Connect(pipe, joinKey, submitKey, nil) // a server that does not answer
	for length, want := range map[int]muster.Code{256: muster.Unavailable, 257: muster.Unauthenticated, 60_000: muster.Unauthenticated} {
		if _, err := s.Authorize(t.Context(), strings.Repeat("x", length)); muster.CodeOf(err) != want {
			t.Errorf("%d bytes: %v", length, err)
		}
	}
}

// The ports of several gateways do not use all descriptors.
func TestMaxConnections(t *testing.T) {
	t.Parallel()
	for descriptors, want := range map[uint64]int{0: 4, 1024: 85, 4096: 341, 1 << 20: 2048} {
		if got := dialect.MaxConnections(descriptors); got != want {
			t.Errorf("%d descriptors: %d connections, want %d", descriptors, got, want)
		}
	}
}
