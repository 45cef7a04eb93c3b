package oidc

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/origin"
	"github.com/muster-dev/muster/internal/sealing"
)

const (
	// requestTimeout limits each request to the provider.
	requestTimeout = 10 * time.Second
	// SignInTimeout is how long a user may take from the first page to the last.
	SignInTimeout = 10 * time.Minute
	// DefaultSession is how long a sign-in lasts by default.
	DefaultSession = 12 * time.Hour
	// retryDiscovery is the pause after the provider's configuration could not be read.
	retryDiscovery = 5 * time.Second
	// maxWait is how long after the begin of a reading requests wait for it.
	maxWait = 3 * time.Second
)

// Config describes the provider, and who may do what. The zero value is no provider.
type Config struct {
	Issuer       string // https URL; http only on loopback
	ClientID     string
	ClientSecret string   // "" for a public client
	Scopes       []string // beside openid
	Name         string   // shown to users; "" means the issuer's host
	Rules        []Rule   // the first that matches counts; at least one
	Session      time.Duration
}

// Provider is an OpenID Connect provider. Its methods may be called concurrently.
type Provider struct {
	cfg  Config
	http *http.Client
	box  *sealing.Box // of a random key: a restart of the server ends the sign-ins in progress

	mu        sync.Mutex
	discovery *discovery // the last one; nil before the first
}

// discovery is one reading of the provider's configuration, for which all requests of its time wait.
type discovery struct {
	begun time.Time
	done  chan struct{}  // closed when the following are set
	known *oidc.Provider // nil after a failure
	err   error
	ended time.Time
}

// failedBefore reports whether the reading failed, long enough ago to try again.
func (d *discovery) failedBefore(now time.Time) bool {
	select {
	case <-d.done:
		return d.err != nil && now.Sub(d.ended) >= retryDiscovery
	default:
		return false
	}
}

// New checks a configuration. The provider is contacted when the first user signs in, so that a server starts without it.
func New(cfg Config) (*Provider, error) {
	u, err := url.Parse(cfg.Issuer)
	switch {
	case err != nil || u.Hostname() == "" || u.Scheme != "https" && u.Scheme != "http" || u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return nil, muster.Errorf(muster.Invalid, "--oidc-issuer is not the URL of an OpenID Connect provider: use one such as https://accounts.example.com, without user, query and fragment")
	case u.Scheme == "http" && !isLoopback(u.Hostname()):
		return nil, muster.Errorf(muster.Invalid, "the OpenID Connect provider %s has no TLS: use its https URL", cfg.Issuer)
	case cfg.ClientID == "":
		return nil, muster.Errorf(muster.Invalid, "sign-in with %s needs the client ID that the provider gave to this server: set --oidc-client-id", cfg.Issuer)
	case len(cfg.Rules) == 0:
		return nil, muster.Errorf(muster.Invalid, "no user could sign in with %s: set --oidc-role, such as submitter=email:*@lab.example", cfg.Issuer)
	}
	cfg.Name = cmp.Or(cfg.Name, u.Hostname())
	cfg.Session = cmp.Or(cfg.Session, DefaultSession)
	key := make([]byte, sealing.KeySize)
	_, _ = rand.Read(key) // never fails
	box, err := sealing.New([][]byte{key})
	if err != nil {
		return nil, err
	}
	client := &http.Client{Timeout: requestTimeout, CheckRedirect: origin.CheckRedirect}
	return &Provider{cfg: cfg, http: client, box: box}, nil
}

func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// Name is what users know the provider by.
func (p *Provider) Name() string { return p.cfg.Name }

// User is a user who has signed in.
type User struct {
	Subject string // issuer and sub, which are unique and never reused
	Name    string // email, user name or sub: of at most 64 printable characters
	Role    auth.Role
	Project string
	Session time.Duration // how long the sign-in lasts
}

// discover returns the provider's configuration, which is read once. It waits no longer than ctx and maxWait.
func (p *Provider) discover(ctx context.Context) (*oidc.Provider, error) {
	p.mu.Lock()
	d := p.discovery
	if now := time.Now(); d == nil || d.failedBefore(now) {
		d = &discovery{begun: now, done: make(chan struct{})}
		p.discovery = d
		// A client that leaves must not make the provider look broken to others. Not joined: it ends with requestTimeout.
		go p.read(context.WithoutCancel(ctx), d)
	}
	p.mu.Unlock()
	wait := time.NewTimer(time.Until(d.begun.Add(maxWait)))
	defer wait.Stop()
	select {
	case <-d.done:
		return d.known, d.err
	case <-wait.C:
		return nil, muster.Errorf(muster.Unavailable, "the sign-in of %s has not answered for %.0f s: try again later", p.cfg.Name, maxWait.Seconds())
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *Provider) read(ctx context.Context, d *discovery) {
	defer close(d.done)
	known, err := oidc.NewProvider(oidc.ClientContext(ctx, p.http), p.cfg.Issuer)
	d.ended = time.Now()
	if err != nil {
		d.err = muster.Errorf(muster.Unavailable, "the sign-in of %s does not answer: %w", p.cfg.Name, err)
		return
	}
	d.known = known
}

func (p *Provider) oauth(known *oidc.Provider, redirect string) *oauth2.Config {
	endpoint := known.Endpoint()
	endpoint.AuthStyle = p.authStyle(known)
	return &oauth2.Config{ClientID: p.cfg.ClientID, ClientSecret: p.cfg.ClientSecret, Endpoint: endpoint, RedirectURL: redirect, Scopes: append([]string{oidc.ScopeOpenID}, p.cfg.Scopes...)}
}

// authStyle returns how the provider takes the client's secret. The library would try both ways, and so poll twice as often as it may.
func (p *Provider) authStyle(known *oidc.Provider) oauth2.AuthStyle {
	var metadata struct {
		Methods []string `json:"token_endpoint_auth_methods_supported"` // absent means client_secret_basic
	}
	if err := known.Claims(&metadata); p.cfg.ClientSecret == "" || err == nil && len(metadata.Methods) > 0 && !slices.Contains(metadata.Methods, "client_secret_basic") {
		return oauth2.AuthStyleInParams
	}
	return oauth2.AuthStyleInHeader
}

// pending is a sign-in in progress, which its client keeps.
type pending struct {
	State    string    `json:"state,omitempty"`
	Nonce    string    `json:"nonce,omitempty"`
	Verifier string    `json:"verifier,omitempty"` // of PKCE
	Next     string    `json:"next,omitempty"`     // path of the page after it
	Device   string    `json:"device,omitempty"`   // device code
	Until    time.Time `json:"until"`
}

// The contexts of sealed texts: a device code is of no use as a cookie.
const (
	browserContext = "sign-in in a browser"
	deviceContext  = "sign-in with a device code"
)

func (p *Provider) seal(s *pending, context string) (string, error) {
	text, err := json.Marshal(s)
	return base64.RawURLEncoding.EncodeToString(p.box.Seal(text, context)), err
}

func (p *Provider) open(sealed, context string) (*pending, error) {
	raw, err := base64.RawURLEncoding.DecodeString(sealed)
	if err == nil {
		raw, err = p.box.Open(raw, context)
	}
	var s pending
	if err == nil {
		err = json.Unmarshal(raw, &s)
	}
	if err != nil || time.Now().After(s.Until) {
		return nil, ErrExpired
	}
	return &s, nil
}

// The reasons for which a sign-in fails.
var (
	// ErrExpired says that a sign-in took too long, was of another browser, or began before the server's last start.
	ErrExpired = muster.Errorf(muster.Unauthenticated, "the sign-in has expired or was started elsewhere: start again")
	// ErrDenied says that the user, or the provider, refused.
	ErrDenied = muster.Errorf(muster.Forbidden, "the sign-in was denied by the provider or cancelled: start again, or ask who manages the provider")
	// ErrNoRole says that no rule gives the user a role.
	ErrNoRole = muster.Errorf(muster.Forbidden, "your account has no access to this server: ask its administrator for a role (--oidc-role)")
	// ErrPending says that a user has not signed in with a device code yet.
	ErrPending = errors.New("the user has not signed in yet")
)

// Begin starts a sign-in in a browser: it returns the page of the provider, and a cookie for Finish. redirect is the URL at which the browser
// comes back, next the path of the page after that.
func (p *Provider) Begin(ctx context.Context, redirect, next string) (location, cookie string, err error) {
	known, err := p.discover(ctx)
	if err != nil {
		return "", "", err
	}
	s := &pending{State: rand.Text(), Nonce: rand.Text(), Verifier: oauth2.GenerateVerifier(), Next: next, Until: time.Now().Add(SignInTimeout)}
	cookie, err = p.seal(s, browserContext)
	return p.oauth(known, redirect).AuthCodeURL(s.State, oidc.Nonce(s.Nonce), oauth2.S256ChallengeOption(s.Verifier)), cookie, err
}

// Finish completes a sign-in with the query with which the browser came back.
func (p *Provider) Finish(ctx context.Context, cookie, redirect string, query url.Values) (u User, next string, err error) {
	s, err := p.open(cookie, browserContext)
	if err != nil {
		return User{}, "", err
	}
	if subtle.ConstantTimeCompare([]byte(query.Get("state")), []byte(s.State)) != 1 {
		return User{}, "", ErrExpired
	}
	if iss := query.Get("iss"); iss != "" && iss != p.cfg.Issuer { // RFC 9207
		return User{}, "", ErrDenied
	}
	if query.Get("error") != "" || query.Get("code") == "" {
		return User{}, "", ErrDenied
	}
	known, err := p.discover(ctx)
	if err != nil {
		return User{}, "", err
	}
	token, err := p.oauth(known, redirect).Exchange(oidc.ClientContext(ctx, p.http), query.Get("code"), oauth2.VerifierOption(s.Verifier))
	if err != nil {
		return User{}, "", p.failed(err)
	}
	u, err = p.identify(ctx, known, token, s.Nonce)
	return u, s.Next, err
}

// failed returns an error of a request for a token.
func (p *Provider) failed(err error) error {
	if refusal, ok := errors.AsType[*oauth2.RetrieveError](err); ok && refusal.Response != nil && refusal.Response.StatusCode < http.StatusInternalServerError {
		switch refusal.ErrorCode {
		case "authorization_pending", "slow_down":
			return ErrPending
		case "expired_token", "invalid_grant":
			return ErrExpired
		case "access_denied":
			return ErrDenied
		}
		return muster.Errorf(muster.Unavailable, "the provider %s refuses this server (%s): check --oidc-client-id and its secret", p.cfg.Name, muster.Truncate(cmp.Or(refusal.ErrorCode, refusal.Response.Status)))
	}
	return muster.Errorf(muster.Unavailable, "the sign-in of %s does not answer: %w", p.cfg.Name, err)
}

// identify verifies an ID token: its signature with a key of the provider, issuer, audience, expiry, and the nonce unless it is "".
func (p *Provider) identify(ctx context.Context, known *oidc.Provider, token *oauth2.Token, nonce string) (User, error) {
	raw, _ := token.Extra("id_token").(string)
	verified, err := known.Verifier(&oidc.Config{ClientID: p.cfg.ClientID}).Verify(oidc.ClientContext(ctx, p.http), raw)
	if err != nil {
		return User{}, muster.Errorf(muster.Unauthenticated, "the provider %s sent no valid ID token: %w", p.cfg.Name, err)
	}
	if nonce != "" && subtle.ConstantTimeCompare([]byte(verified.Nonce), []byte(nonce)) != 1 {
		return User{}, ErrExpired
	}
	claims := map[string]any{}
	if err := verified.Claims(&claims); err != nil {
		return User{}, muster.Errorf(muster.Unauthenticated, "the provider %s sent no valid ID token: %w", p.cfg.Name, err)
	}
	i := p.ruleFor(claims)
	if i < 0 || claims["email"] == nil { // some providers tell the rest only here
		if err := p.addUserInfo(ctx, known, token, verified.Subject, claims); err != nil {
			return User{}, err
		}
		i = p.ruleFor(claims)
	}
	if i < 0 || verified.Subject == "" {
		return User{}, ErrNoRole
	}
	return User{Subject: verified.Issuer + " " + verified.Subject, Name: nameOf(claims, verified.Subject), Role: p.cfg.Rules[i].Role, Project: p.cfg.Rules[i].Project, Session: p.cfg.Session}, nil
}

func (p *Provider) ruleFor(claims map[string]any) int {
	return slices.IndexFunc(p.cfg.Rules, func(r Rule) bool { return r.matches(claims) })
}

// addUserInfo adds the claims that the provider's user info endpoint has. It must be about the same user.
func (p *Provider) addUserInfo(ctx context.Context, known *oidc.Provider, token *oauth2.Token, subject string, claims map[string]any) error {
	if known.UserInfoEndpoint() == "" {
		return nil
	}
	info, err := known.UserInfo(oidc.ClientContext(ctx, p.http), oauth2.StaticTokenSource(token))
	more := map[string]any{}
	if err == nil {
		err = info.Claims(&more)
	}
	if err != nil {
		return muster.Errorf(muster.Unavailable, "the provider %s does not tell who the user is: %w", p.cfg.Name, err)
	}
	if info.Subject != subject {
		return muster.Errorf(muster.Unauthenticated, "the provider %s tells about another user than the one who signed in", p.cfg.Name)
	}
	for name, value := range more {
		if _, own := claims[name]; !own {
			claims[name] = value
		}
	}
	return nil
}

// nameOf returns what a user is called in lists.
func nameOf(claims map[string]any, subject string) string {
	for _, claim := range []string{"email", "preferred_username", "name"} {
		if s, _ := claims[claim].(string); s != "" {
			return plain(s)
		}
	}
	return plain(subject)
}

// plain returns a text as the name of a key.
func plain(s string) string {
	s = strings.Map(func(r rune) rune {
		if r == '/' || r < ' ' || r > '~' {
			return '_'
		}
		return r
	}, s)
	return cmp.Or(strings.TrimSpace(s[:min(len(s), 64)]), "user")
}

// Device is a sign-in with a device code.
type Device struct {
	Handle   string // for Poll
	UserCode string
	URL      string // where the user enters the code
	FullURL  string // the same with the code, or ""
	Interval time.Duration
	Expires  time.Time
}

// HasDevices reports whether the provider signs users in with device codes.
func (p *Provider) HasDevices(ctx context.Context) (bool, error) {
	known, err := p.discover(ctx)
	return err == nil && known.Endpoint().DeviceAuthURL != "", err
}

// BeginDevice starts a sign-in with a device code.
func (p *Provider) BeginDevice(ctx context.Context) (Device, error) {
	known, err := p.discover(ctx)
	if err != nil {
		return Device{}, err
	}
	if known.Endpoint().DeviceAuthURL == "" {
		return Device{}, muster.Errorf(muster.Invalid, "the provider %s has no sign-in for programs without a browser: use an API key", p.cfg.Name)
	}
	code, err := p.oauth(known, "").DeviceAuth(oidc.ClientContext(ctx, p.http), clientSecret(p.cfg.ClientSecret)...)
	if err != nil {
		return Device{}, p.failed(err)
	}
	for _, u := range []string{code.VerificationURI, code.VerificationURIComplete} {
		if parsed, err := url.Parse(u); u != "" && (err != nil || parsed.Scheme != "https" && parsed.Scheme != "http") {
			return Device{}, muster.Errorf(muster.Unavailable, "the provider %s has no page for the code: %q", p.cfg.Name, muster.Truncate(u))
		}
	}
	until := time.Now().Add(SignInTimeout)
	if !code.Expiry.IsZero() && code.Expiry.Before(until) {
		until = code.Expiry
	}
	handle, err := p.seal(&pending{Device: code.DeviceCode, Until: until}, deviceContext)
	interval := time.Duration(min(max(code.Interval, 1), 60)) * time.Second
	return Device{Handle: handle, UserCode: code.UserCode, URL: code.VerificationURI, FullURL: code.VerificationURIComplete, Interval: interval, Expires: until}, err
}

// clientSecret authenticates a device authorization request, for which the library sends only the client ID.
func clientSecret(secret string) []oauth2.AuthCodeOption {
	if secret == "" {
		return nil
	}
	return []oauth2.AuthCodeOption{oauth2.SetAuthURLParam("client_secret", secret)}
}

// Poll asks once whether the user has signed in with a device code: ErrPending if not.
func (p *Provider) Poll(ctx context.Context, handle string) (User, error) {
	s, err := p.open(handle, deviceContext)
	if err != nil {
		return User{}, err
	}
	known, err := p.discover(ctx)
	if err != nil {
		return User{}, err
	}
	// The library's own request for this polls until there is an answer.
	token, err := p.oauth(known, "").Exchange(oidc.ClientContext(ctx, p.http), "",
		oauth2.SetAuthURLParam("grant_type", "urn:ietf:params:oauth:grant-type:device_code"), oauth2.SetAuthURLParam("device_code", s.Device))
	if err != nil {
		return User{}, p.failed(err)
	}
	return p.identify(ctx, known, token, "")
}
