// Package oidctest runs a real OpenID Connect provider, the certified library zitadel/oidc with its storage in memory, on loopback, for tests.
package oidctest

import (
	"context"
	"crypto/rand"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/zitadel/oidc/v3/example/server/storage"
	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"

	"github.com/muster-dev/muster/internal/testkit"
)

// The client of the provider.
const (
	ClientID     = "muster"
	ClientSecret = "a secret/of+the client"
)

// User is a user of the provider.
type User struct {
	Name          string
	Email         string
	EmailVerified bool
	Groups        []string
}

// Provider is a running provider.
type Provider struct {
	URL string // the issuer

	tb    testing.TB
	store *users

	mu     sync.Mutex
	user   string // who signs in next
	change func(http.Handler) http.Handler
}

// New starts a provider, whose client may come back to a URL.
func New(tb testing.TB, redirect string, list ...User) *Provider {
	tb.Helper()
	p := &Provider{tb: tb}
	byName := map[string]User{}
	for _, u := range list {
		byName[u.Name] = u
	}
	var handler http.Handler
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		h := handler
		if p.change != nil {
			h = p.change(h)
		}
		p.mu.Unlock()
		h.ServeHTTP(w, r)
	}))
	tb.Cleanup(s.Close)
	p.URL = s.URL
	p.store = &users{byName: byName}
	p.store.Storage = storage.NewStorageWithClients(p.store, map[string]*storage.Client{ClientID: storage.WebClient(ClientID, ClientSecret, redirect)})
	var key [32]byte
	_, _ = rand.Read(key[:]) // never fails
	provider, err := op.NewProvider(&op.Config{
		CryptoKey: key, CryptoKeyId: "k", CodeMethodS256: true,
		DeviceAuthorization: op.DeviceAuthorizationConfig{Lifetime: time.Minute, PollInterval: time.Second, UserFormPath: "/device", UserCode: op.UserCodeBase20},
	}, p.store, op.StaticIssuer(p.URL), op.WithAllowInsecure())
	testkit.NoError(tb, err)
	callback := op.AuthCallbackURL(provider)
	mux := http.NewServeMux()
	mux.HandleFunc("/login/username", func(w http.ResponseWriter, r *http.Request) { // the user is signed in at the provider
		id := r.FormValue("authRequestID")
		p.mu.Lock()
		name := p.user
		p.mu.Unlock()
		if err := p.store.CheckUsernamePassword(name, "", id); err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		http.Redirect(w, r, callback(op.ContextWithIssuer(r.Context(), p.URL), id), http.StatusFound)
	})
	mux.Handle("/", provider)
	handler = mux
	return p
}

// SignInAs sets who the user of browsers is.
func (p *Provider) SignInAs(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.user = name
}

// Intercept puts a handler in front of the provider.
func (p *Provider) Intercept(change func(http.Handler) http.Handler) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.change = change
}

// Approve lets a user enter a device code.
func (p *Provider) Approve(userCode, name string) {
	p.tb.Helper()
	testkit.NoError(p.tb, p.store.CompleteDeviceAuthorization(p.tb.Context(), userCode, name))
}

// Deny lets a user refuse a device code.
func (p *Provider) Deny(userCode string) {
	p.tb.Helper()
	testkit.NoError(p.tb, p.store.DenyDeviceAuthorization(p.tb.Context(), userCode))
}

// users is the library's storage with users, whose ids are their names, and their groups.
type users struct {
	*storage.Storage

	byName map[string]User
}

// GetUserByID implements storage.UserStore.
func (s *users) GetUserByID(name string) *storage.User {
	u, ok := s.byName[name]
	if !ok {
		return nil
	}
	return &storage.User{ID: u.Name, Username: u.Name, Email: u.Email, EmailVerified: u.EmailVerified}
}

// GetUserByUsername implements storage.UserStore.
func (s *users) GetUserByUsername(name string) *storage.User { return s.GetUserByID(name) }

// ExampleClientID implements storage.UserStore.
func (s *users) ExampleClientID() string { return "service" }

// SetUserinfoFromRequest adds groups to ID tokens.
func (s *users) SetUserinfoFromRequest(ctx context.Context, info *oidc.UserInfo, token op.IDTokenRequest, scopes []string) error {
	s.addGroups(info, token.GetSubject())
	return s.Storage.SetUserinfoFromRequest(ctx, info, token, scopes)
}

// SetUserinfoFromToken adds groups to what the provider answers about a user.
func (s *users) SetUserinfoFromToken(ctx context.Context, info *oidc.UserInfo, tokenID, subject, origin string) error {
	s.addGroups(info, subject)
	return s.Storage.SetUserinfoFromToken(ctx, info, tokenID, subject, origin)
}

func (s *users) addGroups(info *oidc.UserInfo, subject string) {
	if groups := s.byName[subject].Groups; len(groups) > 0 {
		info.AppendClaims("groups", groups)
	}
}

// GetClientByClientID lets the client use device codes, too.
func (s *users) GetClientByClientID(ctx context.Context, id string) (op.Client, error) {
	c, err := s.Storage.GetClientByClientID(ctx, id)
	if err != nil {
		return nil, err
	}
	return deviceClient{c}, nil
}

type deviceClient struct{ op.Client }

// GrantTypes implements op.Client.
func (c deviceClient) GrantTypes() []oidc.GrantType {
	return append(c.Client.GrantTypes(), oidc.GrantTypeDeviceCode)
}
