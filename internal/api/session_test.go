package api_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/apitest"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/store"
)

// signIn creates a browser session and returns its cookie for requests.
func signIn(t *testing.T, s *apitest.Server, token string, header map[string]string) (cookie *http.Cookie, cookieHeader string) {
	t.Helper()
	body, err := json.Marshal(wire.Session{Token: token})
	if err != nil {
		t.Fatal(err)
	}
	resp, answer := send(t, s, request{method: "POST", path: "/api/v1/session", token: "none", body: string(body), header: header})
	if resp.StatusCode != http.StatusOK || len(resp.Cookies()) != 1 {
		t.Fatalf("sign in: %d %s", resp.StatusCode, answer)
	}
	cookie = resp.Cookies()[0]
	return cookie, cookie.Name + "=" + cookie.Value
}

func TestSessionCookie(t *testing.T) {
	s := apitest.Start(t, nil)
	cookie, cookieHeader := signIn(t, s, apitest.AdminToken, nil)
	if cookie.Name != "muster_session" || !cookie.HttpOnly || cookie.SameSite != http.SameSiteStrictMode || cookie.Path != "/" || cookie.Secure || !cookie.Expires.IsZero() {
		t.Errorf("the cookie is %v", cookie)
	}
	if cookie, _ := signIn(t, s, apitest.AdminToken, map[string]string{"X-Forwarded-Proto": "https"}); !cookie.Secure {
		t.Errorf("behind a proxy with TLS the cookie is %v", cookie)
	}
	by := func(method, path string, want int, header ...string) []byte {
		t.Helper()
		q := request{method: method, path: path, token: "none", header: map[string]string{"Cookie": cookieHeader}}
		for i := 0; i < len(header); i += 2 {
			q.header[header[i]] = header[i+1]
		}
		return expectStatus(t, s, q, want)
	}
	var whoami wire.Whoami
	if err := json.Unmarshal(by("GET", "/api/v1/whoami", http.StatusOK), &whoami); err != nil || whoami.Key != "root" || !slices.Contains(whoami.Permissions, "submit jobs") {
		t.Errorf("whoami: %+v, %v", whoami, err)
	}
	// A key in the header overrides the cookie.
	by("GET", "/api/v1/whoami", http.StatusUnauthorized, "Authorization", "Bearer mst_admin_nonsense")
	by("GET", "/api/v1/whoami", http.StatusUnauthorized, "Authorization", "Basic eDp5")
	// A worker cannot connect with a cookie.
	by("GET", "/link/v1", http.StatusUnauthorized)

	resp, _ := send(t, s, request{method: "DELETE", path: "/api/v1/session", token: "none", header: map[string]string{"Cookie": cookieHeader}})
	if resp.StatusCode != http.StatusNoContent || len(resp.Cookies()) != 1 || resp.Cookies()[0].MaxAge >= 0 || resp.Cookies()[0].Value != "" {
		t.Errorf("sign out: %d %v", resp.StatusCode, resp.Cookies())
	}
}

// Requests that a page of another site makes a browser send are rejected.
func TestSessionRefusesOtherOrigins(t *testing.T) {
	s := apitest.Start(t, nil)
	_, cookieHeader := signIn(t, s, apitest.AdminToken, nil)
	host := strings.TrimPrefix(s.URL, "http://")
	for _, tt := range []struct {
		name   string
		method string
		path   string
		header map[string]string
		want   int
	}{
		{"another site", "POST", "/api/v1/jobs", map[string]string{"Sec-Fetch-Site": "cross-site"}, http.StatusForbidden},
		{"another port", "POST", "/api/v1/jobs", map[string]string{"Sec-Fetch-Site": "same-site"}, http.StatusForbidden},
		{"an old browser of another site", "POST", "/api/v1/jobs", map[string]string{"Origin": "https://evil.example"}, http.StatusForbidden},
		{"no origin", "POST", "/api/v1/jobs", map[string]string{"Origin": "null"}, http.StatusForbidden},
		{"a deletion", "DELETE", "/api/v1/keys/k1", map[string]string{"Sec-Fetch-Site": "cross-site"}, http.StatusForbidden},
		{"an upload", "PUT", "/api/v1/blobs/" + helloSum, map[string]string{"Sec-Fetch-Site": "cross-site"}, http.StatusForbidden},
		{"a sign-out", "DELETE", "/api/v1/session", map[string]string{"Sec-Fetch-Site": "cross-site"}, http.StatusForbidden},
		{"a sign-in", "POST", "/api/v1/session", map[string]string{"Sec-Fetch-Site": "cross-site"}, http.StatusForbidden},
		{"the dashboard", "POST", "/api/v1/jobs", map[string]string{"Sec-Fetch-Site": "same-origin"}, http.StatusCreated},
		{"an old browser with the dashboard", "POST", "/api/v1/jobs", map[string]string{"Origin": "http://" + host}, http.StatusCreated},
		{"reading", "GET", "/api/v1/jobs", map[string]string{"Sec-Fetch-Site": "cross-site"}, http.StatusOK},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.header["Cookie"] = cookieHeader
			body := `{"kind":"noop"}`
			if strings.HasSuffix(tt.path, "/session") {
				body = `{"token":"` + apitest.AdminToken + `"}`
			}
			expectStatus(t, s, request{method: tt.method, path: tt.path, token: "none", body: body, header: tt.header}, tt.want)
		})
	}
	// A key in the header is accepted from any origin.
	expectStatus(t, s, request{method: "POST", path: "/api/v1/jobs", body: `{"kind":"noop"}`, header: map[string]string{"Origin": "https://other.example"}}, http.StatusCreated)
}

func TestSessionOfAnExpiringKey(t *testing.T) {
	s := apitest.Start(t, nil)
	put := func(id, token string, expires time.Time) muster.Time {
		t.Helper()
		k := store.Key{ID: id, Name: id, Role: "viewer", Hash: auth.Hash(token), ExpiresAt: muster.NewTime(expires)}
		if err := s.Store.PutKeys(t.Context(), k); err != nil {
			t.Fatal(err)
		}
		return k.ExpiresAt
	}
	oddToken := `a token "with"; odd, \ characters`
	oddToken = strings.ReplaceAll(oddToken, " ", "_")
	until := put("soon", oddToken, time.Now().Add(time.Hour))
	cookie, cookieHeader := signIn(t, s, oddToken, nil)
	if d := cookie.Expires.Sub(until.Std()); d > 0 || d < -time.Second {
		t.Errorf("the cookie ends at %s, the key at %s", cookie.Expires, until)
	}
	var whoami wire.Whoami
	body := expectStatus(t, s, request{method: "GET", path: "/api/v1/whoami", token: "none", header: map[string]string{"Cookie": cookieHeader}}, http.StatusOK)
	if err := json.Unmarshal(body, &whoami); err != nil || whoami.ExpiresAt != until {
		t.Errorf("whoami: %s", body)
	}

	put("old", "expired-token-0123", time.Now().Add(-time.Second))
	body = expectStatus(t, s, request{method: "POST", path: "/api/v1/session", token: "none", body: `{"token":"expired-token-0123"}`}, http.StatusUnauthorized)
	if !strings.Contains(string(body), "expired at") {
		t.Errorf("the answer does not say that the key has expired: %s", body)
	}
	expectStatus(t, s, request{method: "POST", path: "/api/v1/session", token: "none", body: `{"token":"mst_admin_nonsense"}`}, http.StatusUnauthorized)
	expectStatus(t, s, request{method: "GET", path: "/api/v1/jobs", token: "none", header: map[string]string{"Cookie": "muster_session=%%%"}}, http.StatusUnauthorized)
	expectStatus(t, s, request{method: "GET", path: "/api/v1/jobs", token: "none", header: map[string]string{"Cookie": "muster_session="}}, http.StatusUnauthorized)
}

// The dashboard serves browsers, but no path of the API.
func TestUnknownPathsServeDashboardOrProblem(t *testing.T) {
	s := apitest.Start(t, nil)
	html := map[string]string{"Accept": "text/html,*/*;q=0.8"}
	for _, tt := range []struct {
		method, path string
		header       map[string]string
		want         int
		kind         string
	}{
		{"GET", "/", nil, 200, "text/html"},
		{"GET", "/jobs/17", html, 200, "text/html"},
		{"GET", "/share", html, 200, "text/html"},
		{"GET", "/assets/app.js", nil, 200, "text/javascript"},
		{"GET", "/jobs/17", nil, 404, problemKind},
		{"GET", "/assets/other.js", html, 404, problemKind},
		{"POST", "/jobs", html, 404, problemKind},
		{"GET", "/api/v1/nothing", html, 401, problemKind},
		{"GET", "/api/nothing", html, 404, problemKind},
		{"GET", "/link/nothing", html, 404, problemKind},
		{"GET", "/ipfs/a/b", html, 401, problemKind},
		{"GET", "/download/other", html, 404, problemKind},
		{"GET", "/api/docs", html, 200, "text/html"},
		{"GET", "/healthz", html, 200, "application/json"},
	} {
		resp, body := send(t, s, request{method: tt.method, path: tt.path, token: "none", header: tt.header})
		if kind := resp.Header.Get("Content-Type"); resp.StatusCode != tt.want || !strings.HasPrefix(kind, tt.kind) {
			t.Errorf("%s %s: %d %s %s, want %d %s", tt.method, tt.path, resp.StatusCode, kind, body, tt.want, tt.kind)
		}
	}
}

const problemKind = "application/problem+json"

func TestDownloadOfTheExecutable(t *testing.T) {
	s := apitest.Start(t, nil)
	join := s.CreateKey(t, auth.Join, "", "")
	q := request{method: "GET", path: "/download/muster", token: join, header: map[string]string{"Range": "bytes=0-3"}}
	resp, body := send(t, s, q)
	system, arch := resp.Header.Get("X-Muster-OS"), resp.Header.Get("X-Muster-Arch")
	if resp.StatusCode != http.StatusPartialContent || len(body) != 4 || system == "" || arch == "" {
		t.Fatalf("%d %q for %s/%s", resp.StatusCode, body, system, arch)
	}
	if system == "linux" && string(body) != "\x7fELF" {
		t.Errorf("the executable begins with %q", body)
	}
	q.path = "/download/muster?os=" + system + "&arch=" + arch
	expectStatus(t, s, q, http.StatusPartialContent)
	role := func(token string) (whoami wire.Whoami) {
		t.Helper()
		if err := json.Unmarshal(expectStatus(t, s, request{method: "GET", path: "/api/v1/whoami", token: token}, http.StatusOK), &whoami); err != nil {
			t.Fatal(err)
		}
		return whoami
	}
	if d := role(join).Download; d == nil || d.OS != system || d.Arch != arch {
		t.Errorf("a join key gets %+v", d)
	}
	if d := role(s.CreateKey(t, auth.Viewer, "", "")).Download; d != nil {
		t.Errorf("a viewer gets %+v", d)
	}
	q.path = "/download/muster?os=plan9&arch=mips"
	if body := expectStatus(t, s, q, http.StatusNotFound); !strings.Contains(string(body), system+"/"+arch+", not for plan9/mips") {
		t.Errorf("the refusal is %s", body)
	}
	q.path, q.token = "/download/muster", s.CreateKey(t, auth.Viewer, "", "")
	expectStatus(t, s, q, http.StatusForbidden)
	q.token = s.CreateKey(t, auth.Submitter, "", "")
	expectStatus(t, s, q, http.StatusForbidden)
}

// Answers are not cached, not readable by pages of other origins, and not sniffed.
func TestResponsesAreNotCached(t *testing.T) {
	s := apitest.Start(t, nil)
	for path, want := range map[string]int{
		"/api/v1/jobs": http.StatusOK, "/api/v1/jobs/7": http.StatusNotFound, "/api/v1/overview": http.StatusOK, "/metrics": http.StatusOK, "/download/muster": http.StatusOK,
	} {
		for token, want := range map[string]int{apitest.AdminToken: want, "none": http.StatusUnauthorized} {
			resp, _ := send(t, s, request{method: "GET", path: path, token: token})
			h := resp.Header
			if cache := h.Get("Cache-Control"); resp.StatusCode != want || cache != "no-store" && cache != "private, no-cache" || h.Get("Cross-Origin-Resource-Policy") != "same-origin" || h.Get("X-Content-Type-Options") != "nosniff" {
				t.Errorf("GET %s with %s: %d, %v", path, token, resp.StatusCode, h)
			}
		}
	}
}
