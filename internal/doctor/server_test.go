package doctor

import (
	"cmp"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/internal/agent"
	"github.com/muster-dev/muster/internal/client"
)

var serverChecks = []string{"server", "clock", "version", "token", "join-token", "saved", "identity"}

func TestHealthyServer(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	cfg.Server, cfg.ServerSet = SavedServer{URL: startServer(t), Token: adminToken, JoinToken: joinToken}, true
	found := runChecks(t, cfg, serverChecks...)
	wantFinding(t, found, "server", OK, cfg.Server.URL)
	wantFinding(t, found, "clock", OK)
	wantFinding(t, found, "version", OK, "1.2.3")
	wantFinding(t, found, "token", OK, "admin")
	wantFinding(t, found, "join-token", OK)
	wantFinding(t, found, "identity", Note)
	cfg.Version = "1.3.0"
	wantFinding(t, runChecks(t, cfg, "version"), "version", Note, "1.2.3", "1.3.0")
}

func TestInvalidTokens(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	cfg.Server, cfg.ServerSet = SavedServer{URL: startServer(t), Token: "mst_admin_wrong", JoinToken: "mst_join_wrong"}, true
	found := runChecks(t, cfg, serverChecks...)
	wantFinding(t, found, "server", OK)
	wantFinding(t, found, "token", Problem, "muster keys create")
	wantFinding(t, found, "join-token", Problem, "muster keys create --role join")
	cfg.Server.Token, cfg.Server.JoinToken = joinToken, adminToken
	found = runChecks(t, cfg, serverChecks...)
	wantFinding(t, found, "token", Warning, "join")
	wantFinding(t, found, "join-token", OK) // an administrator may, too
	c, err := client.New(cfg.Server.URL, adminToken, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	key, err := c.CreateKey(t.Context(), client.NewKey{Name: "v", Role: "viewer", Project: "vision"})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Server.Token, cfg.Server.JoinToken = key.Secret, key.Secret
	found = runChecks(t, cfg, serverChecks...)
	wantFinding(t, found, "token", OK, "viewer", "vision")
	wantFinding(t, found, "join-token", Problem, "viewer")
}

func TestWorkerKeyIsChecked(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	cfg.Server, cfg.ServerSet = SavedServer{URL: startServer(t), JoinToken: joinToken}, true
	at, err := url.Parse(cfg.Server.URL)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(cfg.Data, 0o700); err != nil {
		t.Fatal(err)
	}
	id, err := agent.Join(t.Context(), http.DefaultClient, at, joinToken, agent.Registration{Name: "rig"}, cfg.Data, discardLog)
	if err != nil {
		t.Fatal(err)
	}
	wantFinding(t, runChecks(t, cfg, "identity"), "identity", OK, string(id.Worker))

	other := cfg // a server that the worker has not joined is not given its key
	other.Server.URL = startServer(t)
	wantFinding(t, runChecks(t, other, "identity"), "identity", Note, cfg.Server.URL, other.Server.URL)

	writeFile(t, cfg.Data, "identity.json", `{"worker":"w-gone","key":"mst_worker_gone","server":"`+cfg.Server.URL+`"}`)
	wantFinding(t, runChecks(t, cfg, "identity"), "identity", Problem, "w-gone", "joins again")
	writeFile(t, cfg.Data, "identity.json", `{"worker":`)
	wantFinding(t, runChecks(t, cfg, "identity"), "identity", Problem, "damaged", "mv ")
	writeFile(t, cfg.Data, "identity.json", `{"worker":"w-far","key":"k","server":"http://`+unusedAddr+`"}`)
	wantFinding(t, runChecks(t, cfg, "identity"), "identity", Warning, "w-far")
}

// skewedProxy is a proxy before a server whose clock is off by that much.
func skewedProxy(t *testing.T, server string, by time.Duration) string {
	t.Helper()
	to, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) },
		ModifyResponse: func(r *http.Response) error {
			r.Header.Set("Date", time.Now().Add(by).UTC().Format(http.TimeFormat))
			return nil
		},
	}
	s := httptest.NewServer(proxy)
	t.Cleanup(s.Close)
	return s.URL
}

func TestClocksAreCompared(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	for _, c := range []struct {
		by      time.Duration
		want    Status
		message string
	}{
		{0, OK, "agree"},
		{10 * time.Second, Warning, "behind"},
		{-10 * time.Second, Warning, "ahead of"},
		{time.Minute, Problem, "behind"},
		{time.Hour, Problem, "behind"},
		{-2 * time.Minute, Problem, "ahead of"},
	} {
		cfg := testConfig(t)
		cfg.Server, cfg.ServerSet = SavedServer{URL: skewedProxy(t, server, c.by), Token: adminToken}, true
		found := runChecks(t, cfg, "server", "clock")
		wantFinding(t, found, "server", OK)
		wantFinding(t, found, "clock", c.want, c.message)
	}
}

func TestNotAMusterServer(t *testing.T) {
	t.Parallel()
	answers := func(status int, body string) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
		}))
		t.Cleanup(s.Close)
		return s.URL
	}
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(secure.Close)
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	for _, c := range []struct {
		url, message string
		step         time.Duration // if it is not that of all
	}{
		{"http://" + unusedAddr, "connection refused", 0},
		{"ftp://" + unusedAddr, "is not the URL", 0},
		{"", "is not the URL", 0},
		{"http://no-such-host.invalid:8700", "cannot resolve the name", time.Second},
		{"http://" + silent.Addr().String(), "does not answer", time.Second},
		{answers(404, "not found"), "is not a Muster server", 0},
		{answers(200, `{"status":"ok"}`), "is not a Muster server", 0},
		{answers(200, `<html>hello`), "is not a Muster server", 0},
		{secure.URL, "unknown authority", 0},
		{strings.Replace(secure.URL, "https", "http", 1), "use https://", 0},
		{strings.Replace(answers(200, ""), "http", "https", 1), "use http://", 0},
	} {
		cfg := testConfig(t)
		cfg.Server, cfg.ServerSet = SavedServer{URL: c.url, Token: adminToken}, true
		cfg.timeouts.step = cmp.Or(c.step, cfg.timeouts.step)
		found := runChecks(t, cfg, serverChecks...)
		wantFinding(t, found, "server", Problem, c.message)
		wantFinding(t, found, "clock", Note)
		wantFinding(t, found, "token", Note)
	}
}

func TestMissingServerIsNotAProblem(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	cfg.Server.URL = "http://" + unusedAddr
	found := runChecks(t, cfg, serverChecks...)
	wantFinding(t, found, "server", Note, "muster up")
	wantFinding(t, found, "saved", Note)
	for _, name := range []string{"clock", "token", "join-token"} {
		wantNoFinding(t, found, name)
	}
	if w := Worst(found); w != Note {
		t.Errorf("the worst is %s", w)
	}
}

func TestOpenFileOfSavedServers(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	cfg.SavedPath = filepath.Join(t.TempDir(), "context.json")
	writeFile(t, filepath.Dir(cfg.SavedPath), "context.json", "{}")
	wantFinding(t, runChecks(t, cfg, "saved"), "saved", OK)
	if err := os.Chmod(cfg.SavedPath, 0o644); err != nil {
		t.Fatal(err)
	}
	wantFinding(t, runChecks(t, cfg, "saved"), "saved", Problem, "chmod 600 "+cfg.SavedPath)
}

func TestListenNamesTheProcess(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	wantFinding(t, runChecks(t, cfg, "listen"), "listen", OK)
	s := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(s.Close)
	cfg.Listen = strings.TrimPrefix(s.URL, "http://")
	wantFinding(t, runChecks(t, cfg, "listen"), "listen", Note, "ss -ltnp")
	cfg.ListenSet = true
	f := wantFinding(t, runChecks(t, cfg, "listen"), "listen", Problem)
	if self := filepath.Base(os.Args[0]); isLinux && !strings.Contains(f.Found, self[:min(15, len(self))]) {
		t.Errorf("%s does not say that it is %s", f.Found, self)
	}
	cfg.Listen = strings.TrimPrefix(startServer(t), "http://")
	wantFinding(t, runChecks(t, cfg, "listen"), "listen", OK, "a Muster server")
	cfg.Listen = "8700"
	wantFinding(t, runChecks(t, cfg, "listen"), "listen", Problem, "is not an address")
	cfg.Listen = "192.0.2.1:8700"
	wantFinding(t, runChecks(t, cfg, "listen"), "listen", Problem)
}

func TestDialects(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/healthz":
			_, _ = w.Write([]byte(`{"status":"ok"}`))
		case "/readyz":
			why := map[string]string{"Bearer key": "Redis is away"}[r.Header.Get("Authorization")]
			_, _ = w.Write([]byte(`{"status":"ok","gateways":[{"name":"qubix","status":"ok"},{"name":"mloc","status":"` + why + `"}]}`))
		default:
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = w.Write([]byte(`{"code":"unauthenticated"}`))
		}
	}))
	t.Cleanup(server.Close)
	cfg := testConfig(t)
	cfg.Server, cfg.ServerSet = SavedServer{URL: server.URL, Token: "key"}, true
	var list []string
	for _, f := range runChecks(t, cfg, "server") {
		if f.Name == "dialect" {
			list = append(list, string(f.Status)+" "+f.Found)
		}
	}
	if got := strings.Join(list, "; "); got != "ok the gateway qubix works; problem the gateway mloc does not work: Redis is away" {
		t.Errorf("doctor printed %q", got)
	}
}
