package access

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/caller"
	"github.com/muster-dev/muster/internal/api/rest"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/oidc"
	"github.com/muster-dev/muster/internal/store"
)

// PathSignIn is the path of sign-in with an OpenID Connect provider, which needs no key.
const PathSignIn = wire.Prefix + "/oidc"

const (
	pathCallback = PathSignIn + "/callback"
	// maxUserSessions is how many sign-ins of one user are valid: another one ends the oldest.
	maxUserSessions = 20
	cookieSignIn    = "muster_signin"
)

func (a *Access) signInRoutes(rr *rest.Router) {
	rest.Handle(rr, rest.Route{ID: "get-sign-in", Method: http.MethodGet, Path: PathSignIn, Tag: "session", Public: true,
		Summary: "Show whether users can sign in with an OpenID Connect provider"}, a.getSignIn)
	rest.Stream(rr, rest.Route{ID: "begin-sign-in", Method: http.MethodGet, Path: PathSignIn + "/login", Tag: "session", Public: true, Status: http.StatusFound,
		Summary: "Redirect a browser to the OpenID Connect provider"}, a.beginSignIn)
	// Providers send query parameters of their own.
	rest.Raw(rr, rest.Route{ID: "finish-sign-in", Method: http.MethodGet, Path: pathCallback, Public: true, Audit: rest.AuditRead}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := a.finishSignIn(w, r); err != nil {
			rr.WriteError(w, r, err)
		}
	}))
	rest.Handle(rr, rest.Route{ID: "begin-device-sign-in", Method: http.MethodPost, Path: PathSignIn + "/device", Tag: "session", Public: true, Audit: rest.AuditDenials,
		Summary: "Start a sign-in that the user completes in any browser, with a code"}, a.beginDeviceSignIn)
	rest.Handle(rr, rest.Route{ID: "finish-device-sign-in", Method: http.MethodPost, Path: PathSignIn + "/device/token", Tag: "session", Public: true, Audit: rest.AuditCounted, // most only ask
		Summary: "Get an API key once the user has signed in with the code"}, a.finishDeviceSignIn)
}

// provider returns the OpenID Connect provider, or NotFound.
func (a *Access) provider() (*oidc.Provider, error) {
	if a.SignIn == nil {
		return nil, muster.Errorf(muster.NotFound, "this server has no sign-in with an OpenID Connect provider: use an API key, or start the server with --oidc-issuer")
	}
	return a.SignIn, nil
}

func (a *Access) getSignIn(ctx context.Context, _ *struct{}) (*rest.Response[wire.SignIn], error) {
	if a.SignIn == nil {
		return rest.Respond(wire.SignIn{}), nil
	}
	device, err := a.SignIn.HasDevices(ctx)
	if err != nil {
		a.Log.WarnContext(ctx, "cannot read the configuration of the OpenID Connect provider", slog.Any("error", err))
	}
	return rest.Respond(wire.SignIn{Provider: a.SignIn.Name(), Device: device}), nil
}

// signInCookie returns the cookie of a sign-in in progress; "" removes it. The provider's page sends the browser back, so that it cannot be strict.
func signInCookie(r *http.Request, value string) *http.Cookie {
	c := &http.Cookie{ //nolint:gosec // without TLS a browser would refuse a secure cookie
		Name: cookieSignIn, Value: value, Path: PathSignIn, MaxAge: int(oidc.SignInTimeout / time.Second), HttpOnly: true, SameSite: http.SameSiteLaxMode, Secure: OverTLS(r),
	}
	if value == "" {
		c.MaxAge = -1
	}
	return c
}

// callbackURL is where the provider sends browsers back. It is registered there, so that a false host name is refused.
func (a *Access) callbackURL(r *http.Request) string {
	base := strings.TrimSuffix(a.URL, "/")
	if base == "" {
		scheme := "http"
		if OverTLS(r) {
			scheme = "https"
		}
		base = scheme + "://" + r.Host
	}
	return base + pathCallback
}

type beginSignInInput struct {
	Next string `query:"next" maxLength:"2048" doc:"path of the page after the sign-in; default: /"`
}

func (a *Access) beginSignIn(w http.ResponseWriter, r *http.Request, in *beginSignInInput) error {
	p, err := a.provider()
	if err != nil {
		return err
	}
	location, cookie, err := p.Begin(r.Context(), a.callbackURL(r), localPath(in.Next))
	if err != nil {
		a.redirectFailed(w, r, err)
		return nil
	}
	http.SetCookie(w, signInCookie(r, cookie))
	redirect(w, location)
	return nil
}

// localPath returns a path of this server's pages, / for anything else.
func localPath(s string) string {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "" || u.Host != "" || !strings.HasPrefix(u.Path, "/") || strings.HasPrefix(u.Path, "//") || strings.Contains(s, `\`) {
		return "/"
	}
	return u.String()
}

// redirect sends a browser on. http.Redirect would add a body with a link.
func redirect(w http.ResponseWriter, location string) {
	w.Header().Set("Location", location)
	w.WriteHeader(http.StatusFound)
}

// The reasons for which the dashboard says that a sign-in failed.
var signInFailures = []struct {
	err  error
	name string
}{{oidc.ErrExpired, "expired"}, {oidc.ErrDenied, "denied"}, {oidc.ErrNoRole, "no-role"}}

// redirectFailed sends a browser to the sign-in page, which says why. The page has fixed texts: a link cannot make it say something else.
func (a *Access) redirectFailed(w http.ResponseWriter, r *http.Request, err error) {
	name := "unavailable"
	for _, f := range signInFailures {
		if errors.Is(err, f.err) {
			name = f.name
		}
	}
	if name == "unavailable" {
		a.Log.WarnContext(r.Context(), "sign-in failed", slog.Any("error", err))
	}
	caller.Deny(r.Context(), err)
	redirect(w, "/?sign-in="+name)
}

// finishSignIn signs in a browser that the provider sent back.
func (a *Access) finishSignIn(w http.ResponseWriter, r *http.Request) error {
	p, err := a.provider()
	if err != nil {
		return err
	}
	var cookie string
	if c, err := r.Cookie(cookieSignIn); err == nil {
		cookie = c.Value
	}
	http.SetCookie(w, signInCookie(r, ""))
	user, next, err := p.Finish(r.Context(), cookie, a.callbackURL(r), r.URL.Query())
	var key store.Key
	var secret string
	if err == nil {
		key, secret, err = a.signedIn(r.Context(), user)
	}
	if err != nil {
		a.redirectFailed(w, r, err)
		return nil
	}
	session := sessionCookie(r, secret, key.ExpiresAt)
	http.SetCookie(w, &session)
	redirect(w, next)
	return nil
}

// signedIn makes the key of a user's new sign-in. It deletes the keys of sign-ins that have expired, and the user's oldest beyond maxUserSessions.
func (a *Access) signedIn(ctx context.Context, u oidc.User) (store.Key, string, error) {
	now := muster.NewTime(time.Now())
	keys, err := a.Keys.ListKeys(ctx)
	if err != nil {
		return store.Key{}, "", err
	}
	expired := func(k *store.Key) bool { return k.ExpiresAt != 0 && k.ExpiresAt <= now }
	var own []string // in the order of their creation
	for i := range keys {
		if k := &keys[i]; k.Subject == u.Subject && !expired(k) {
			own = append(own, k.ID)
		}
	}
	excess := own[:max(0, len(own)-maxUserSessions+1)]
	if err := a.revokeKeys(ctx, func(k *store.Key) bool { return k.Subject != "" && expired(k) || slices.Contains(excess, k.ID) }); err != nil {
		return store.Key{}, "", err
	}
	k := store.Key{Name: u.Name, Role: string(u.Role), Project: u.Project, Subject: u.Subject, CreatedAt: now, ExpiresAt: now.Add(muster.Duration(u.Session))}
	secret, err := a.makeKey(ctx, &k)
	if err == nil {
		rec := caller.Audit(ctx)
		caller.Identify(rec, auth.Principal{KeyID: k.ID, Name: k.Name, Role: u.Role, Project: k.Project})
		rec.Object = "key/" + k.ID
	}
	return k, secret, err
}

func (a *Access) beginDeviceSignIn(ctx context.Context, _ *struct{}) (*rest.Response[wire.DeviceSignIn], error) {
	p, err := a.provider()
	if err != nil {
		return nil, err
	}
	d, err := p.BeginDevice(ctx)
	return rest.Respond(wire.DeviceSignIn{Device: d.Handle, UserCode: d.UserCode, URL: d.URL, FullURL: d.FullURL, Interval: muster.Duration(d.Interval), ExpiresAt: muster.NewTime(d.Expires)}), err
}

type deviceTokenInput struct{ Body wire.DeviceHandle }

func (a *Access) finishDeviceSignIn(ctx context.Context, in *deviceTokenInput) (*rest.Response[wire.DeviceResult], error) {
	p, err := a.provider()
	if err != nil {
		return nil, err
	}
	user, err := p.Poll(ctx, in.Body.Device)
	if errors.Is(err, oidc.ErrPending) {
		return rest.Respond(wire.DeviceResult{Pending: true}), nil
	}
	if err != nil {
		return nil, err
	}
	key, secret, err := a.signedIn(ctx, user)
	shown := keyResponse(key)
	return rest.Respond(wire.DeviceResult{Key: &shown, Secret: auth.WithPin(secret, a.Pin)}), err
}

// endSignIn deletes the key of a sign-in when its browser signs out. Other keys stay.
func (a *Access) endSignIn(ctx context.Context, token string) error {
	if token == "" {
		return nil
	}
	key, err := a.Keys.KeyByHash(ctx, auth.Hash(token))
	if err != nil || key.Subject == "" {
		if code := muster.CodeOf(err); code == muster.NotFound || code == muster.Forbidden {
			err = nil // it has ended
		}
		return err
	}
	return a.Ring.Revoke(ctx, key)
}
