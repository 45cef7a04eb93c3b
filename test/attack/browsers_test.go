//go:build unix

package attack

import (
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/mustertest"
)

var errForbidden = errors.New("forbidden")

// asPage makes a request one that a page of another site has a browser send.
func asPage(r *http.Request) {
	r.Header.Set("User-Agent", "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0 Safari/537.36")
	r.Header.Set("Origin", "http://evil.example")
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	r.Header.Set("Sec-Fetch-Mode", "no-cors")
}

// TestBrowsersReachOnlyTheServersOwnNames checks that a name of another site which points to this machine (DNS rebinding) is
// of no use to the pages of that site, and that programs behind a proxy with any name are served.
func TestBrowsersReachOnlyTheServersOwnNames(t *testing.T) {
	t.Parallel()
	e := newEnvFor(t, mustertest.NewWith(t, t.TempDir(), mustertest.Options{Flags: []string{"--allow-host", "muster.lab.example"}}))
	token := e.key(string(auth.Viewer), "", 0).Secret
	for host, want := range map[string]int{"rebound.evil.example": http.StatusMisdirectedRequest, "muster.lab.example": http.StatusOK, "localhost": http.StatusOK, "": http.StatusOK} {
		for _, path := range []string{"/healthz", "/api/v1/jobs", "/", "/api/v1/openapi.json"} {
			r := e.request(http.MethodGet, path, token, nil)
			r.Host = host
			if rec := e.do(r); rec.Code != http.StatusOK {
				t.Errorf("a program asks %q for %s: %d %s", host, path, rec.Code, rec.Body)
			}
			r = e.request(http.MethodGet, path, token, nil)
			r.Host = host
			r.Header.Set("User-Agent", "Mozilla/5.0 (X11; Linux x86_64)")
			if rec := e.do(r); rec.Code != want {
				t.Errorf("a browser asks %q for %s: %d, want %d", host, path, rec.Code, want)
			}
			r.Header.Set("User-Agent", "curl/8.5.0") // which pages can set in Firefox and Safari
			r.Header.Set("Accept-Language", "*")
			if rec := e.do(r); rec.Code != want {
				t.Errorf("a browser whose page gave it another name asks %q for %s: %d, want %d", host, path, rec.Code, want)
			}
		}
	}
}

// TestAllAnswersHaveSecurityHeaders checks pages, answers of the API, errors and what needs no key.
func TestAllAnswersHaveSecurityHeaders(t *testing.T) {
	t.Parallel()
	port := mustertest.ReservePort(t)
	e := newEnvFor(t, mustertest.NewWith(t, t.TempDir(), mustertest.Options{Flags: []string{"--dialect", "qubix=" + port}}))
	token := e.key(string(auth.Viewer), "", 0).Secret
	check := func(what string, r *http.Request) {
		t.Helper()
		resp, err := e.http.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		policy := resp.Header.Get("Content-Security-Policy")
		if !strings.Contains(policy, "default-src '") || !strings.Contains(policy, "frame-ancestors 'none'") || strings.Contains(policy, "script-src 'unsafe") ||
			resp.Header.Get("X-Content-Type-Options") != "nosniff" || resp.Header.Get("X-Frame-Options") != "DENY" || resp.Header.Get("Referrer-Policy") != "no-referrer" {
			t.Errorf("%s (%d): %v", what, resp.StatusCode, resp.Header)
		}
	}
	for _, path := range []string{"/", "/jobs/1", "/healthz", "/readyz", "/metrics", "/api/v1/jobs", "/api/v1/jobs/77", "/api/v1/openapi.json", "/api/v1/docs", "/api/v1/schemas/job.json", "/nothing", "/api/v1/nothing", "/link/v1/socket"} {
		check(path, e.request(http.MethodGet, path, token, nil))
		check(path+" without a key", e.request(http.MethodGet, path, "", nil))
	}
	task := e.attempt().Task.String()
	for _, path := range []string{"/api/v1/events", "/api/v1/tasks/" + task + "/logs", "/api/v1/tasks/" + task + "/logs?follow=true", "/api/v1/tasks/" + task + "/usage?follow=true", "/api//v1/jobs", "/download/muster"} {
		check(path, e.request(http.MethodGet, path, mustertest.AdminToken, nil))
	}
	check("a wrong method", e.request(http.MethodPut, "/api/v1/jobs", token, nil))
	check("an unknown key", e.request(http.MethodGet, "/api/v1/jobs", "mst_viewer_unknown_key", nil))
	for _, path := range []string{"/", "/nothing", "/api/jobs/pending"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+port+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		check("gateway "+path, r)
	}
}

// TestPagesCannotUseTheDashboardsCookie checks that a page of another origin, also of another port of the server's host, to which browsers send
// the cookie of the dashboard, changes nothing with it and opens no terminal in a task.
func TestPagesCannotUseTheDashboardsCookie(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	task := e.attempt().Task
	r := e.request(http.MethodPost, "/api/v1/session", "", strings.NewReader(`{"token":"`+e.AdminToken+`"}`))
	r.Header.Set("Content-Type", "application/json")
	cookie, _, _ := strings.Cut(e.do(r).Header().Get("Set-Cookie"), ";")
	otherPort := http.Header{"Origin": {"http://127.0.0.1:1"}, "Sec-Fetch-Site": {"same-site"}}
	for origin, header := range map[string]http.Header{
		"another site": {"Origin": {"http://evil.example"}, "Sec-Fetch-Site": {"cross-site"}}, "another port": otherPort, "a sandboxed frame": {"Origin": {"null"}}, "an old browser": {"Origin": {"http://127.0.0.1:1"}},
	} {
		header.Set("Cookie", cookie)
		for _, change := range []string{"POST /api/v1/jobs", "POST /api/v1/keys", "POST /api/v1/jobs/" + task.Job.String() + "/cancel", "DELETE /api/v1/session"} {
			method, path, _ := strings.Cut(change, " ")
			r := e.request(method, path, "", strings.NewReader(`{}`))
			r.Header = header.Clone()
			r.Header.Set("Content-Type", "application/json")
			if rec := e.do(r); rec.Code != http.StatusForbidden {
				t.Errorf("%s: %s: %d %s", origin, change, rec.Code, rec.Body)
			}
		}
		ws, resp, err := websocket.Dial(t.Context(), "ws://"+e.Addr+"/api/v1/tasks/"+task.String()+"/exec", &websocket.DialOptions{HTTPHeader: header})
		if err == nil {
			_ = ws.CloseNow()
		}
		if resp == nil || resp.StatusCode != http.StatusForbidden {
			t.Errorf("%s: a terminal in a task: %v", origin, err)
		}
	}
}

// TestGatewaysWithoutKeysTakeNothingFromPages checks that a page which somebody on this machine visits can neither register workers
// nor submit tasks at a gateway without keys, by forms, scripts or WebSockets, while its own programs can.
func TestGatewaysWithoutKeysTakeNothingFromPages(t *testing.T) {
	t.Parallel()
	qubix, dtf := mustertest.ReservePort(t), mustertest.ReservePort(t)
	e := newEnvFor(t, mustertest.NewWith(t, t.TempDir(), mustertest.Options{Flags: []string{"--dialect", "qubix=" + qubix, "--dialect", "dtf=" + dtf}}))
	post := func(page bool, host string) int {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+qubix+"/api/providers/quick-register", strings.NewReader(`{"name":"w"}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Host = host
		r.Header.Set("Content-Type", "text/plain") // as a form sends it, without a question beforehand
		if page {
			asPage(r)
		}
		if host != "" { // for the browser it is a request of the page to its own site
			r.Header.Set("Origin", "http://"+host)
			r.Header.Set("Sec-Fetch-Site", "same-origin")
		}
		resp, err := e.http.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	if status := post(false, ""); status == http.StatusForbidden {
		t.Errorf("a program: %d", status)
	}
	if status := post(true, ""); status != http.StatusForbidden {
		t.Errorf("a page: %d", status)
	}
	_, port, err := net.SplitHostPort(qubix)
	if err != nil {
		t.Fatal(err)
	}
	if status := post(true, "rebound.evil.example:"+port); status != http.StatusForbidden {
		t.Errorf("a page by a name of its own: %d", status)
	}
	dial := func(header http.Header) error {
		ws, resp, err := websocket.Dial(t.Context(), "ws://"+dtf+"/ws", &websocket.DialOptions{HTTPHeader: header})
		if err == nil {
			return ws.CloseNow()
		}
		if resp != nil && resp.StatusCode == http.StatusForbidden {
			return errForbidden
		}
		return err
	}
	if err := dial(nil); err != nil {
		t.Errorf("a program's WebSocket: %v", err)
	}
	if err := dial(http.Header{"Origin": {"http://evil.example"}}); !errors.Is(err, errForbidden) {
		t.Errorf("a page's WebSocket: %v", err)
	}
}
