package oidc_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/oidc"
	"github.com/muster-dev/muster/internal/oidc/oidctest"
	"github.com/muster-dev/muster/internal/testkit"
)

const redirect = "http://localhost:8700/api/v1/oidc/callback"

var people = []oidctest.User{
	{Name: "ann", Email: "ann@lab.example", EmailVerified: true},
	{Name: "bob", Email: "bob@lab.example"},
	{Name: "cleo", Email: "cleo@elsewhere.example", EmailVerified: true, Groups: []string{"staff", "ml-admins"}},
}

func rules(t *testing.T, texts ...string) (list []oidc.Rule) {
	t.Helper()
	for _, text := range texts {
		r, err := oidc.ParseRule(text)
		testkit.NoError(t, err)
		list = append(list, r)
	}
	return list
}

func newProvider(t *testing.T, issuer string, texts ...string) *oidc.Provider {
	t.Helper()
	p, err := oidc.New(oidc.Config{Issuer: issuer, ClientID: oidctest.ClientID, ClientSecret: oidctest.ClientSecret, Scopes: []string{"email", "profile"}, Rules: rules(t, texts...)})
	testkit.NoError(t, err)
	return p
}

// visit follows a sign-in at the provider as a browser does, until the provider sends it back.
func visit(t *testing.T, location string) url.Values {
	t.Helper()
	client := &http.Client{CheckRedirect: func(r *http.Request, _ []*http.Request) error {
		if strings.HasPrefix(r.URL.String(), redirect) {
			return http.ErrUseLastResponse
		}
		return nil
	}}
	resp, err := client.Get(location)
	testkit.NoError(t, err)
	defer resp.Body.Close()
	back, err := resp.Location()
	if err != nil {
		b, _ := io.ReadAll(resp.Body)
		t.Fatalf("the provider answers %d %s", resp.StatusCode, b)
	}
	return back.Query()
}

func TestBrowser(t *testing.T) {
	t.Parallel()
	at := oidctest.New(t, redirect, people...)
	p := newProvider(t, at.URL, "admin=groups:ml-*", "submitter/vision=email:*@lab.example")
	for name, want := range map[string]oidc.User{
		"ann":  {Subject: at.URL + " ann", Name: "ann@lab.example", Role: auth.Submitter, Project: "vision", Session: oidc.DefaultSession},
		"bob":  {}, // its email is not verified
		"cleo": {Subject: at.URL + " cleo", Name: "cleo@elsewhere.example", Role: auth.Admin, Session: oidc.DefaultSession},
	} {
		at.SignInAs(name)
		location, cookie, err := p.Begin(t.Context(), redirect, "/jobs/7")
		testkit.NoError(t, err)
		u, err := url.Parse(location)
		testkit.NoError(t, err)
		if q := u.Query(); q.Get("code_challenge_method") != "S256" || q.Get("code_challenge") == "" || q.Get("nonce") == "" || q.Get("state") == "" || strings.Contains(cookie, q.Get("state")) {
			t.Errorf("it begins at %s with the cookie %s", location, cookie)
		}
		query := visit(t, location)
		got, next, err := p.Finish(t.Context(), cookie, redirect, query)
		switch {
		case want.Role == "" && !errors.Is(err, oidc.ErrNoRole):
			t.Errorf("%s: %+v, %v", name, got, err)
		case want.Role != "" && (err != nil || got != want || next != "/jobs/7"):
			t.Errorf("%s: %+v, %q, %v; want %+v", name, got, next, err, want)
		}
		if _, _, err := p.Finish(t.Context(), cookie, redirect, query); err == nil {
			t.Errorf("%s: a code works twice", name)
		}
	}
}

// TestForeignSignIn comes back with what was not sent to this browser.
func TestForeignSignIn(t *testing.T) {
	t.Parallel()
	at := oidctest.New(t, redirect, people...)
	at.SignInAs("ann")
	p := newProvider(t, at.URL, "viewer=sub:*")
	begin := func() (string, url.Values) {
		location, cookie, err := p.Begin(t.Context(), redirect, "/")
		testkit.NoError(t, err)
		return cookie, visit(t, location)
	}
	ownCookie, ownQuery := begin()
	_, foreignQuery := begin()
	device, err := p.BeginDevice(t.Context())
	testkit.NoError(t, err)
	with := func(q url.Values, name, value string) url.Values {
		changed := maps.Clone(q)
		changed.Set(name, value)
		return changed
	}
	for name, c := range map[string]struct {
		cookie string
		query  url.Values
		want   error
	}{
		"without its cookie":                     {"", ownQuery, oidc.ErrExpired},
		"with a made-up cookie":                  {base64.RawURLEncoding.EncodeToString(make([]byte, 200)), ownQuery, oidc.ErrExpired},
		"with a device code as its cookie":       {device.Handle, with(ownQuery, "state", ""), oidc.ErrExpired},
		"another one's answer":                   {ownCookie, foreignQuery, oidc.ErrExpired},
		"another one's code":                     {ownCookie, with(ownQuery, "code", foreignQuery.Get("code")), oidc.ErrExpired}, // PKCE
		"another state":                          {ownCookie, with(ownQuery, "state", "x"), oidc.ErrExpired},
		"the answer of another provider":         {ownCookie, with(ownQuery, "iss", "https://evil.example"), oidc.ErrDenied},
		"a refusal":                              {ownCookie, with(ownQuery, "error", "access_denied"), oidc.ErrDenied},
		"without a code":                         {ownCookie, with(ownQuery, "code", ""), oidc.ErrDenied},
		"a code that the provider does not know": {ownCookie, with(ownQuery, "code", "x"), oidc.ErrExpired},
	} {
		if u, _, err := p.Finish(t.Context(), c.cookie, redirect, c.query); !errors.Is(err, c.want) {
			t.Errorf("%s: %+v, %v", name, u, err)
		}
	}
	if _, err := p.Poll(t.Context(), ownCookie); !errors.Is(err, oidc.ErrExpired) {
		t.Errorf("a cookie as a device code: %v", err)
	}
	if restarted := newProvider(t, at.URL, "viewer=sub:*"); true {
		if _, _, err := restarted.Finish(t.Context(), ownCookie, redirect, ownQuery); !errors.Is(err, oidc.ErrExpired) {
			t.Errorf("after a restart: %v", err)
		}
	}
}

// TestForgedTokens has a provider whose answers have changed ID tokens.
func TestForgedTokens(t *testing.T) {
	t.Parallel()
	at := oidctest.New(t, redirect, people...)
	at.SignInAs("ann")
	p := newProvider(t, at.URL, "viewer=sub:*")
	encode := func(v any) string {
		b, err := json.Marshal(v)
		testkit.NoError(t, err)
		return base64.RawURLEncoding.EncodeToString(b)
	}
	decode := func(s string) map[string]any {
		b, err := base64.RawURLEncoding.DecodeString(s)
		testkit.NoError(t, err)
		m := map[string]any{}
		testkit.NoError(t, json.Unmarshal(b, &m))
		return m
	}
	for name, forge := range map[string]func(head, claims map[string]any, signature string) string{
		"with another subject": func(head, claims map[string]any, signature string) string {
			claims["sub"] = "cleo"
			return encode(head) + "." + encode(claims) + "." + signature
		},
		"without a signature": func(head, claims map[string]any, _ string) string {
			head["alg"] = "none"
			return encode(head) + "." + encode(claims) + "."
		},
		"with a signature by a shared secret": func(head, claims map[string]any, signature string) string {
			head["alg"] = "HS256"
			return encode(head) + "." + encode(claims) + "." + signature
		},
		"that is missing": func(map[string]any, map[string]any, string) string { return "" },
		"that is no JWT":  func(map[string]any, map[string]any, string) string { return "a.b.c" },
	} {
		at.Intercept(func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/oauth/token" {
					next.ServeHTTP(w, r)
					return
				}
				rec := httptest.NewRecorder()
				next.ServeHTTP(rec, r)
				answer := map[string]any{}
				if err := json.Unmarshal(rec.Body.Bytes(), &answer); err != nil || rec.Code != http.StatusOK {
					t.Errorf("the provider answers %d %s", rec.Code, rec.Body)
				}
				parts := strings.Split(answer["id_token"].(string), ".")
				answer["id_token"] = forge(decode(parts[0]), decode(parts[1]), parts[2])
				w.Header().Set("Content-Type", "application/json")
				_ = json.NewEncoder(w).Encode(answer)
			})
		})
		location, cookie, err := p.Begin(t.Context(), redirect, "/")
		testkit.NoError(t, err)
		if u, _, err := p.Finish(t.Context(), cookie, redirect, visit(t, location)); muster.CodeOf(err) != muster.Unauthenticated || !strings.Contains(err.Error(), "no valid ID token") {
			t.Errorf("a token %s: %+v, %v", name, u, err)
		}
	}
}

// TestTokensOfAnotherSignIn: a valid ID token of the same user, but of another sign-in or for another client, is refused.
func TestTokensOfAnotherSignIn(t *testing.T) {
	t.Parallel()
	at := oidctest.New(t, redirect, people...)
	at.SignInAs("ann")
	var former []byte
	at.Intercept(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/oauth/token" {
				next.ServeHTTP(w, r)
				return
			}
			rec := httptest.NewRecorder()
			next.ServeHTTP(rec, r)
			body := rec.Body.Bytes()
			if former == nil {
				former = body
			}
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(former)
		})
	})
	p := newProvider(t, at.URL, "viewer=sub:*")
	for i, want := range []error{nil, oidc.ErrExpired} {
		location, cookie, err := p.Begin(t.Context(), redirect, "/")
		testkit.NoError(t, err)
		if u, _, err := p.Finish(t.Context(), cookie, redirect, visit(t, location)); !errors.Is(err, want) {
			t.Errorf("sign-in %d: %+v, %v", i, u, err)
		}
	}
}

func TestDevice(t *testing.T) {
	t.Parallel()
	at := oidctest.New(t, redirect, people...)
	p := newProvider(t, at.URL, "viewer=email:*@lab.example")
	if ok, err := p.HasDevices(t.Context()); err != nil || !ok {
		t.Fatal(ok, err)
	}
	for name, want := range map[string]error{"ann": nil, "cleo": oidc.ErrNoRole, "": oidc.ErrDenied} {
		d, err := p.BeginDevice(t.Context())
		testkit.NoError(t, err)
		if d.UserCode == "" || d.URL != at.URL+"/device" || !strings.Contains(d.FullURL, d.UserCode) || d.Interval != time.Second || time.Until(d.Expires) > time.Minute {
			t.Errorf("it begins with %+v", d)
		}
		if _, err := p.Poll(t.Context(), d.Handle); !errors.Is(err, oidc.ErrPending) {
			t.Errorf("before the user signed in: %v", err)
		}
		if name == "" {
			at.Deny(d.UserCode)
		} else {
			at.Approve(d.UserCode, name)
		}
		u, err := p.Poll(t.Context(), d.Handle)
		if !errors.Is(err, want) || err == nil && (u.Name != "ann@lab.example" || u.Role != auth.Viewer) {
			t.Errorf("%q: %+v, %v", name, u, err)
		}
	}
}

// TestProviderIsAway: sign-ins fail with a message until the provider is there, also when it was not there at the first.
func TestProviderIsAway(t *testing.T) {
	t.Parallel()
	at := oidctest.New(t, redirect, people...)
	at.Intercept(func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "down", http.StatusBadGateway) })
	})
	p := newProvider(t, at.URL, "viewer=sub:*")
	if _, _, err := p.Begin(t.Context(), redirect, "/"); muster.CodeOf(err) != muster.Unavailable || !strings.Contains(err.Error(), "does not answer") {
		t.Errorf("%v", err)
	}
	at.Intercept(nil)
	testkit.AwaitNil(t, "a sign-in begins", time.Minute, func() error {
		_, _, err := p.Begin(t.Context(), redirect, "/")
		return err
	})
}

// TestProviderHangs has a provider that takes requests and does not answer: no sign-in waits long for it, or for another one. Then it answers, to
// one request of all that wait.
func TestProviderHangs(t *testing.T) {
	t.Parallel()
	at := oidctest.New(t, redirect, people...)
	answer := make(chan struct{})
	var asked atomic.Int64
	at.Intercept(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.Contains(r.URL.Path, "openid-configuration") {
				asked.Add(1)
				<-answer
			}
			next.ServeHTTP(w, r)
		})
	})
	p := newProvider(t, at.URL, "viewer=sub:*")
	left, leave := context.WithCancel(t.Context())
	leave()
	begun := time.Now()
	if _, _, err := p.Begin(left, redirect, "/"); !errors.Is(err, context.Canceled) || time.Since(begun) > 2*time.Second {
		t.Errorf("a client that left waits %v: %v", time.Since(begun), err)
	}
	var waiting sync.WaitGroup
	for range 5 {
		waiting.Go(func() {
			if _, err := p.HasDevices(t.Context()); muster.CodeOf(err) != muster.Unavailable || !strings.Contains(err.Error(), "has not answered") {
				t.Errorf("a client that waits gets %v", err)
			}
		})
	}
	waiting.Wait()
	if took := time.Since(begun); took > 6*time.Second {
		t.Errorf("they waited %v", took)
	}
	begun = time.Now()
	if _, err := p.HasDevices(t.Context()); muster.CodeOf(err) != muster.Unavailable || time.Since(begun) > time.Second {
		t.Errorf("a later client waits %v: %v", time.Since(begun), err)
	}
	close(answer)
	testkit.AwaitNil(t, "a sign-in begins", time.Minute, func() error {
		_, _, err := p.Begin(t.Context(), redirect, "/")
		return err
	})
	if n := asked.Load(); n != 1 {
		t.Errorf("the provider was asked %d times", n)
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	good := oidc.Config{Issuer: "https://accounts.example.com", ClientID: "x", Rules: rules(t, "viewer=sub:*")}
	if p, err := oidc.New(good); err != nil || p.Name() != "accounts.example.com" {
		t.Error(p, err)
	}
	for want, change := range map[string]func(*oidc.Config){
		"is not the URL":     func(c *oidc.Config) { c.Issuer = "accounts.example.com" },
		"without user":       func(c *oidc.Config) { c.Issuer = "https://u:secret@accounts.example.com" },
		"has no TLS":         func(c *oidc.Config) { c.Issuer = "http://accounts.example.com" },
		"--oidc-client-id":   func(c *oidc.Config) { c.ClientID = "" },
		"no user could sign": func(c *oidc.Config) { c.Rules = nil },
	} {
		c := good
		change(&c)
		if _, err := oidc.New(c); muster.CodeOf(err) != muster.Invalid || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", want, err)
		}
	}
}

func TestParseRule(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"admin=groups:ml-admins", "submitter/vision=email:*@lab.example", "viewer=sub:a:b=c/d", "operator=roles:ops", "admin/vision=groups:*"} {
		if r, err := oidc.ParseRule(text); err != nil || r.String() != text {
			t.Errorf("%q is %q: %v", text, r, err)
		}
	}
	for _, text := range []string{"", "admin", "admin=", "admin=groups", "admin=groups:", "admin=:x", "root=groups:x", "join=groups:x", "worker=groups:x", "operator/vision=groups:x", "viewer/=groups:x"} {
		if r, err := oidc.ParseRule(text); muster.CodeOf(err) != muster.Invalid {
			t.Errorf("%q is %+v: %v", text, r, err)
		}
	}
}

// FuzzRule: what is a rule has one form, and it never gives a role that is not a user's.
func FuzzRule(f *testing.F) {
	for _, text := range []string{"admin=groups:ml-admins", "submitter/vision=email:*@lab.example", "=:", "admin/=a:b"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := oidc.ParseRule(text)
		if err != nil {
			return
		}
		again, err := oidc.ParseRule(r.String())
		if err != nil || again != r || r.Role == auth.Worker || r.Role == auth.Join || r.Claim == "" || r.Pattern == "" {
			t.Errorf("%q is %+v, again %+v, %v", text, r, again, err)
		}
	})
}
