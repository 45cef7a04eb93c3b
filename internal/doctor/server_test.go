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

func TestServerIsWell(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	cfg.Server, cfg.Named = Known{URL: aServer(t), Token: adminToken, JoinToken: joinToken}, true
	found := look(t, cfg, serverChecks...)
	want(t, found, "server", OK, cfg.Server.URL)
	want(t, found, "clock", OK)
	want(t, found, "version", OK, "1.2.3")
	want(t, found, "token", OK, "admin")
	want(t, found, "join-token", OK)
	want(t, found, "identity", Note)
	cfg.Version = "1.3.0"
	want(t, look(t, cfg, "version"), "version", Note, "1.2.3", "1.3.0")
}

func TestTokensThatAreNotGood(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	cfg.Server, cfg.Named = Known{URL: aServer(t), Token: "mst_admin_wrong", JoinToken: "mst_join_wrong"}, true
	found := look(t, cfg, serverChecks...)
	want(t, found, "server", OK)
	want(t, found, "token", Problem, "muster keys create")
	want(t, found, "join-token", Problem, "muster keys create --role join")
	cfg.Server.Token, cfg.Server.JoinToken = joinToken, adminToken
	found = look(t, cfg, serverChecks...)
	want(t, found, "token", Warning, "join")
	want(t, found, "join-token", OK) // an administrator may, too
	c, err := client.New(cfg.Server.URL, adminToken, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	key, err := c.CreateKey(t.Context(), client.NewKey{Name: "v", Role: "viewer", Project: "vision"})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Server.Token, cfg.Server.JoinToken = key.Secret, key.Secret
	found = look(t, cfg, serverChecks...)
	want(t, found, "token", OK, "viewer", "vision")
	want(t, found, "join-token", Problem, "viewer")
}

func TestWorkersKeyIsAskedFor(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	cfg.Server, cfg.Named = Known{URL: aServer(t), JoinToken: joinToken}, true
	at, err := url.Parse(cfg.Server.URL)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(cfg.Data, 0o700); err != nil {
		t.Fatal(err)
	}
	id, err := agent.Join(t.Context(), http.DefaultClient, at, joinToken, "rig", cfg.Data, quiet)
	if err != nil {
		t.Fatal(err)
	}
	want(t, look(t, cfg, "identity"), "identity", OK, string(id.Worker))

	other := cfg // a server that the worker has not joined is not given its key
	other.Server.URL = aServer(t)
	want(t, look(t, other, "identity"), "identity", Note, cfg.Server.URL, other.Server.URL)

	put(t, cfg.Data, "identity.json", `{"worker":"w-gone","key":"mst_worker_gone","server":"`+cfg.Server.URL+`"}`)
	want(t, look(t, cfg, "identity"), "identity", Problem, "w-gone", "joins again")
	put(t, cfg.Data, "identity.json", `{"worker":`)
	want(t, look(t, cfg, "identity"), "identity", Problem, "damaged", "mv ")
	put(t, cfg.Data, "identity.json", `{"worker":"w-far","key":"k","server":"http://`+nobody+`"}`)
	want(t, look(t, cfg, "identity"), "identity", Warning, "w-far")
}

// shifted is a proxy before a server whose clock is off by that much.
func shifted(t *testing.T, server string, by time.Duration) string {
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
	server := aServer(t)
	for _, c := range []struct {
		by   time.Duration
		want Status
		says string
	}{
		{0, OK, "agree"},
		{10 * time.Second, Warning, "behind"},
		{-10 * time.Second, Warning, "ahead of"},
		{time.Minute, Problem, "behind"},
		{time.Hour, Problem, "behind"},
		{-2 * time.Minute, Problem, "ahead of"},
	} {
		cfg := config(t)
		cfg.Server, cfg.Named = Known{URL: shifted(t, server, c.by), Token: adminToken}, true
		found := look(t, cfg, "server", "clock")
		want(t, found, "server", OK)
		want(t, found, "clock", c.want, c.says)
	}
}

func TestServerThatIsNone(t *testing.T) {
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
		url, says string
		step      time.Duration // if it is not that of all
	}{
		{"http://" + nobody, "nobody listens", 0},
		{"ftp://" + nobody, "no URL", 0},
		{"", "no URL", 0},
		{"http://no-such-host.invalid:8700", "leads to no address", time.Second},
		{"http://" + silent.Addr().String(), "does not answer", time.Second},
		{answers(404, "not found"), "no Muster server", 0},
		{answers(200, `{"status":"ok"}`), "no Muster server", 0},
		{answers(200, `<html>hello`), "no Muster server", 0},
		{secure.URL, "signed by nobody", 0},
		{strings.Replace(secure.URL, "https", "http", 1), "write https://", 0},
		{strings.Replace(answers(200, ""), "http", "https", 1), "write http://", 0},
	} {
		cfg := config(t)
		cfg.Server, cfg.Named = Known{URL: c.url, Token: adminToken}, true
		cfg.waits.step = cmp.Or(c.step, cfg.waits.step)
		found := look(t, cfg, serverChecks...)
		want(t, found, "server", Problem, c.says)
		want(t, found, "clock", Note)
		want(t, found, "token", Note)
	}
}

func TestNoServerIsNoProblem(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	cfg.Server.URL = "http://" + nobody
	found := look(t, cfg, serverChecks...)
	want(t, found, "server", Note, "muster up")
	want(t, found, "saved", Note)
	for _, name := range []string{"clock", "token", "join-token"} {
		none(t, found, name)
	}
	if w := Worst(found); w != Note {
		t.Errorf("the worst is %s", w)
	}
}

func TestSavedServersAreClosedToOthers(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	cfg.Saved = filepath.Join(t.TempDir(), "context.json")
	put(t, filepath.Dir(cfg.Saved), "context.json", "{}")
	want(t, look(t, cfg, "saved"), "saved", OK)
	if err := os.Chmod(cfg.Saved, 0o644); err != nil {
		t.Fatal(err)
	}
	found := look(t, cfg, "saved")
	want(t, found, "saved", Problem, "chmod 600 "+cfg.Saved)
	mended(t, cfg, found, "saved")
	info, err := os.Stat(cfg.Saved)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

func TestListenTellsWho(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	want(t, look(t, cfg, "listen"), "listen", OK)
	s := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(s.Close)
	cfg.Listen = strings.TrimPrefix(s.URL, "http://")
	want(t, look(t, cfg, "listen"), "listen", Note, "ss -ltnp")
	cfg.Listens = true
	f := want(t, look(t, cfg, "listen"), "listen", Problem)
	if self := filepath.Base(os.Args[0]); isLinux && !strings.Contains(f.Found, self[:min(15, len(self))]) {
		t.Errorf("%s does not say that it is %s", f.Found, self)
	}
	cfg.Listen = strings.TrimPrefix(aServer(t), "http://")
	want(t, look(t, cfg, "listen"), "listen", OK, "a Muster server")
	cfg.Listen = "8700"
	want(t, look(t, cfg, "listen"), "listen", Problem, "no address")
	cfg.Listen = "192.0.2.1:8700"
	want(t, look(t, cfg, "listen"), "listen", Problem)
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
	cfg := config(t)
	cfg.Server, cfg.Named = Known{URL: server.URL, Token: "key"}, true
	var told []string
	for _, f := range look(t, cfg, "server") {
		if f.Name == "dialect" {
			told = append(told, string(f.Status)+" "+f.Found)
		}
	}
	if got := strings.Join(told, "; "); got != "ok qubix is served; problem mloc is not served: Redis is away" {
		t.Errorf("the doctor says %q", got)
	}
}
