package access

import (
	"cmp"
	"context"
	"encoding/base64"
	"net/http"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/caller"
	"github.com/muster-dev/muster/internal/api/keyring"
	"github.com/muster-dev/muster/internal/api/rest"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/artifacturl"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/connlimit"
)

// PathSession is the path of sign-in and sign-out, which need no key.
const PathSession = wire.Prefix + "/session"

func (a *Access) sessionRoutes(rr *rest.Router) {
	rest.Handle(rr, rest.Route{ID: "create-session", Method: http.MethodPost, Path: PathSession, Tag: "session", Public: true,
		Summary: "Sign in a browser: check an API key and set it as a cookie that scripts cannot read"}, a.createSession)
	rest.Handle(rr, rest.Route{ID: "delete-session", Method: http.MethodDelete, Path: PathSession, Tag: "session", Public: true, Status: http.StatusNoContent, Audit: rest.AuditDenials,
		Summary: "Sign out a browser: remove the cookie, and end the user's sign-in if it was one with an OpenID Connect provider"}, a.deleteSession)
}

// Identify authenticates a request by the signature of its URL or else by its Authorization header or, if it has none and cookies are allowed, by the cookie of a browser session. With a
// cookie it rejects changes that a page of another site requests, because browsers send cookies with such requests, too.
func (a *Access) Identify(r *http.Request, cookies bool) (auth.Principal, *keyring.ActiveKey, error) {
	if artifacturl.IsSigned(r.URL) {
		return a.identifyURL(r)
	}
	token := auth.Bearer(r.Header.Get("Authorization"))
	if len(r.Header["Authorization"]) == 0 && cookies {
		if token = cookieToken(r); token != "" {
			if err := a.checkOrigin(r); err != nil {
				return auth.Principal{}, nil, cmp.Or(a.Limits.AllowAddress(r.Context(), connlimit.RemoteAddr(r.RemoteAddr)), err)
			}
		}
	}
	return a.Ring.Authenticate(r.Context(), connlimit.RemoteAddr(r.RemoteAddr), token)
}

// identifyURL authenticates a request whose URL is signed. Its caller may only read one file.
func (a *Access) identifyURL(r *http.Request) (auth.Principal, *keyring.ActiveKey, error) {
	scope, err := a.URLs.Verify(r.URL, time.Now())
	if err != nil {
		return auth.Principal{}, nil, cmp.Or(a.Limits.AllowAddress(r.Context(), connlimit.RemoteAddr(r.RemoteAddr)), err)
	}
	p := auth.Principal{Name: "URL of an artifact", Role: auth.Viewer, Job: scope.Task.Job, File: scope.SHA256, Expires: scope.Expires}
	return p, a.Ring.OfJob(scope.Task.Job), nil
}

// checkOrigin rejects a change that a page of another origin requests.
func (a *Access) checkOrigin(r *http.Request) error {
	if a.crossOrigin.Check(r) != nil {
		return muster.Errorf(muster.Forbidden, "%s %s was requested by a page of another site: use the dashboard of this server, or send the API key in the Authorization header", r.Method, r.URL.Path)
	}
	return nil
}

// cookieToken returns the token of a browser session, or "".
func cookieToken(r *http.Request) string {
	c, err := r.Cookie(wire.CookieSession)
	if err != nil {
		return ""
	}
	token, err := base64.RawURLEncoding.DecodeString(c.Value)
	if err != nil {
		return ""
	}
	return string(token)
}

// OverTLS reports whether a browser sent a request over TLS, maybe to a proxy.
func OverTLS(r *http.Request) bool {
	return r.TLS != nil || strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "https")
}

// sessionCookie returns the cookie for a token; "" removes the cookie. The value is encoded because tokens of users may have characters that cookies may not.
func sessionCookie(r *http.Request, token string, expires muster.Time) http.Cookie {
	c := http.Cookie{ //nolint:gosec // without TLS a browser would refuse a secure cookie
		Name: wire.CookieSession, Value: base64.RawURLEncoding.EncodeToString([]byte(token)), Path: "/",
		HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: OverTLS(r),
	}
	switch {
	case token == "":
		c.MaxAge = -1
	case expires != 0:
		c.Expires = expires.Std()
	}
	return c
}

type createSessionInput struct{ Body wire.Session }

type createSessionOutput struct {
	SetCookie http.Cookie `header:"Set-Cookie"`
	Body      wire.Whoami
}

func (a *Access) createSession(ctx context.Context, in *createSessionInput) (*createSessionOutput, error) {
	r := rest.RequestOf(ctx)
	if err := a.checkOrigin(r); err != nil {
		return nil, err
	}
	p, _, err := a.Ring.Authenticate(ctx, connlimit.RemoteAddr(r.RemoteAddr), in.Body.Token)
	if err != nil {
		return nil, err
	}
	caller.Identify(caller.Audit(ctx), p)
	return &createSessionOutput{SetCookie: sessionCookie(r, in.Body.Token, p.Expires), Body: a.whoamiResponse(p)}, nil
}

type deleteSessionOutput struct {
	SetCookie http.Cookie `header:"Set-Cookie"`
}

func (a *Access) deleteSession(ctx context.Context, _ *struct{}) (*deleteSessionOutput, error) {
	r := rest.RequestOf(ctx)
	if err := a.checkOrigin(r); err != nil {
		return nil, err
	}
	return &deleteSessionOutput{SetCookie: sessionCookie(r, "", 0)}, a.endSignIn(ctx, cookieToken(r))
}
