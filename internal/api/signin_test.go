package api_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/muster-dev/muster/internal/api/apitest"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/oidc"
	"github.com/muster-dev/muster/internal/oidc/oidctest"
	"github.com/muster-dev/muster/internal/testkit"
)

const pathSignIn = "/api/v1/oidc"

// startSignIn starts a server and a provider with users.
func startSignIn(t *testing.T) (*apitest.Server, *oidctest.Provider) {
	t.Helper()
	at := oidctest.New(t, apitest.PublicURL+pathSignIn+"/callback",
		oidctest.User{Name: "ann", Email: "ann@lab.example", EmailVerified: true}, oidctest.User{Name: "eve", Email: "eve@evil.example", EmailVerified: true})
	p, err := oidc.New(oidc.Config{
		Issuer: at.URL, ClientID: oidctest.ClientID, ClientSecret: oidctest.ClientSecret, Name: "the lab", Scopes: []string{"email"},
		Rules: []oidc.Rule{{Role: auth.Submitter, Project: "vision", Claim: "email", Pattern: "*@lab.example"}},
	})
	testkit.NoError(t, err)
	return apitest.StartWithSignIn(t, p), at
}

// goldenSignIn begins with the sign-in of a user; see TestGoldenSignIn.
var goldenSignIn = []goldenCase{
	{"sign-in", request{method: "GET", path: pathSignIn, token: "none"}, "get-sign-in"},
	{"sign-in-device", request{method: "POST", path: pathSignIn + "/device", token: "none"}, "begin-device-sign-in"},
	{"sign-in-device-pending", request{method: "POST", path: pathSignIn + "/device/token", token: "none", body: "pending"}, "finish-device-sign-in"},
	{"sign-in-device-done", request{method: "POST", path: pathSignIn + "/device/token", token: "none", body: "approved"}, "finish-device-sign-in"},
	{"sign-in-device-unknown", request{method: "POST", path: pathSignIn + "/device/token", token: "none", body: `{"device":"x"}`}, "error"},
	{"sign-in-device-no-role", request{method: "POST", path: pathSignIn + "/device/token", token: "none", body: "foreign"}, "error"},
}

func TestGoldenSignIn(t *testing.T) {
	s, at := startSignIn(t)
	cases := append([]goldenCase{}, goldenSignIn...)
	for i := range cases {
		if q := &cases[i].request; q.body != "" && !strings.HasPrefix(q.body, "{") {
			resp, body := send(t, s, request{method: "POST", path: pathSignIn + "/device", token: "none"})
			if resp.Header.Get("Cache-Control") != "no-store" {
				t.Errorf("caches may store %s", body)
			}
			var d wire.DeviceSignIn
			testkit.NoError(t, json.Unmarshal(body, &d))
			if user := map[string]string{"approved": "ann", "foreign": "eve"}[q.body]; user != "" {
				at.Approve(d.UserCode, user)
			}
			q.body = `{"device":"` + d.Device + `"}`
		}
	}
	checkGolden(t, s, cases)
}

// browser signs a user in as a browser does, and returns the cookies and the last location.
func browser(t *testing.T, s *apitest.Server, next string) (cookies map[string]string, location string) {
	t.Helper()
	cookies = map[string]string{}
	visit := func(path string) string {
		var header []string
		for name, value := range cookies {
			header = append(header, name+"="+value)
		}
		resp, body := send(t, s, request{method: "GET", path: path, token: "none", header: map[string]string{"Cookie": strings.Join(header, "; ")}})
		if resp.StatusCode != http.StatusFound {
			t.Fatalf("%s: %d %s", path, resp.StatusCode, body)
		}
		for _, c := range resp.Cookies() {
			if cookies[c.Name] = c.Value; c.MaxAge < 0 {
				delete(cookies, c.Name)
			}
			if !c.HttpOnly || c.SameSite == http.SameSiteNoneMode || c.SameSite == 0 {
				t.Errorf("%s sets %+v", path, c)
			}
		}
		return resp.Header.Get("Location")
	}
	location = visit(pathSignIn + "/login?next=" + url.QueryEscape(next))
	client := &http.Client{CheckRedirect: func(r *http.Request, _ []*http.Request) error {
		if strings.HasPrefix(r.URL.String(), apitest.PublicURL) {
			return http.ErrUseLastResponse
		}
		return nil
	}}
	resp, err := client.Get(location)
	testkit.NoError(t, err)
	testkit.NoError(t, resp.Body.Close())
	back := resp.Header.Get("Location")
	if !strings.HasPrefix(back, apitest.PublicURL+pathSignIn+"/callback?") {
		t.Fatalf("the provider sends the browser to %d %q", resp.StatusCode, back)
	}
	return cookies, visit(strings.TrimPrefix(back, apitest.PublicURL))
}

func whoami(t *testing.T, s *apitest.Server, cookies map[string]string) (wire.Whoami, int) {
	t.Helper()
	resp, body := send(t, s, request{method: "GET", path: "/api/v1/whoami", token: "none", header: map[string]string{"Cookie": wire.CookieSession + "=" + cookies[wire.CookieSession]}})
	var me wire.Whoami
	testkit.NoError(t, json.Unmarshal(body, &me))
	return me, resp.StatusCode
}

func TestSignInOfBrowsers(t *testing.T) {
	s, at := startSignIn(t)
	at.SignInAs("ann")
	cookies, location := browser(t, s, "/jobs/7?tab=logs")
	me, status := whoami(t, s, cookies)
	if location != "/jobs/7?tab=logs" || status != http.StatusOK || me.Name != "ann@lab.example" || me.Role != "submitter" || me.Project != "vision" || me.ExpiresAt == 0 || len(cookies) != 1 {
		t.Errorf("at %s with %v: %d %+v", location, cookies, status, me)
	}
	if resp, body := send(t, s, request{method: "POST", path: "/api/v1/keys/" + me.Key + "/rotate"}); resp.StatusCode != http.StatusConflict || !strings.Contains(string(body), "sign-in of ann@lab.example") {
		t.Errorf("rotating its key: %d %s", resp.StatusCode, body)
	}
	for _, next := range []string{"//evil.example/", "https://evil.example/", `/\evil.example`, "javascript:alert(1)", "jobs", "", "%zz"} {
		if _, location := browser(t, s, next); location != "/" {
			t.Errorf("after the sign-in %q leads to %q", next, location)
		}
	}
	// The sign-out ends it, also for who has the cookie.
	if resp, body := send(t, s, request{method: "DELETE", path: "/api/v1/session", token: "none", header: map[string]string{"Cookie": wire.CookieSession + "=" + cookies[wire.CookieSession]}}); resp.StatusCode != http.StatusNoContent {
		t.Errorf("sign-out: %d %s", resp.StatusCode, body)
	}
	if _, status := whoami(t, s, cookies); status != http.StatusUnauthorized {
		t.Errorf("after the sign-out: %d", status)
	}

	at.SignInAs("eve")
	if cookies, location := browser(t, s, "/"); location != "/?sign-in=no-role" || cookies[wire.CookieSession] != "" {
		t.Errorf("a user without a role is at %q with %v", location, cookies)
	}
	for query, want := range map[string]string{"?error=access_denied&state=x": "/?sign-in=expired", "": "/?sign-in=expired"} {
		if resp, _ := send(t, s, request{method: "GET", path: pathSignIn + "/callback" + query, token: "none"}); resp.Header.Get("Location") != want {
			t.Errorf("%q without a cookie leads to %q", query, resp.Header.Get("Location"))
		}
	}
	at.Intercept(func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
	})
	resp, _ := send(t, s, request{method: "POST", path: pathSignIn + "/device", token: "none"})
	if resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("a provider that does not answer: %d", resp.StatusCode)
	}
}

// Another sign-in beyond the maximum ends the user's oldest, and no key of another user.
func TestSignInsOfOneUserAreBounded(t *testing.T) {
	s, at := startSignIn(t)
	s.CreateKey(t, auth.Viewer, "", "")
	at.SignInAs("ann")
	var all []map[string]string
	for range 21 {
		cookies, _ := browser(t, s, "/")
		all = append(all, cookies)
	}
	for i, cookies := range all {
		want := http.StatusOK
		if i == 0 {
			want = http.StatusUnauthorized
		}
		if _, status := whoami(t, s, cookies); status != want {
			t.Errorf("sign-in %d: %d", i, status)
		}
	}
	expectStatus(t, s, request{method: "GET", path: "/api/v1/whoami", token: "token-of-viewer-"}, http.StatusOK)
	expectStatus(t, s, request{method: "GET", path: "/api/v1/whoami"}, http.StatusOK)
}

func TestServerWithoutSignIn(t *testing.T) {
	s := apitest.Start(t, nil)
	if body := expectStatus(t, s, request{method: "GET", path: pathSignIn, token: "none"}, http.StatusOK); !strings.Contains(string(body), `"device":false`) || strings.Contains(string(body), "provider") {
		t.Errorf("%s", body)
	}
	for _, q := range []request{{method: "GET", path: pathSignIn + "/login"}, {method: "GET", path: pathSignIn + "/callback"}, {method: "POST", path: pathSignIn + "/device"}, {method: "POST", path: pathSignIn + "/device/token", body: `{"device":"x"}`}} {
		q.token = "none"
		if body := expectStatus(t, s, q, http.StatusNotFound); !strings.Contains(string(body), "--oidc-issuer") {
			t.Errorf("%s: %s", q.path, body)
		}
	}
}
