package api

import (
	"context"
	"net/http"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/access"
	"github.com/muster-dev/muster/internal/api/caller"
	"github.com/muster-dev/muster/internal/api/keyring"
	"github.com/muster-dev/muster/internal/api/rest"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/connlimit"
	"github.com/muster-dev/muster/internal/link"
)

type contextKey int

const activeKeyCtxKey contextKey = 0

// principalOf returns the caller; the zero Principal in a request that needs no key.
func principalOf(ctx context.Context) auth.Principal { return caller.FromContext(ctx) }

// WorkerOfRequest returns the worker whose key a request to Config.LinkSocket or LinkPoll
// has. Errors are Unauthenticated or Forbidden.
func WorkerOfRequest(r *http.Request) (link.Peer, error) {
	p := principalOf(r.Context())
	return link.Peer{Worker: p.Worker, Secret: p.Secret}, auth.Can(p, auth.ConnectWorker, auth.Object{})
}

// EnrolmentOf returns what the worker of a session is bound to, from the context of the request that opened it.
func EnrolmentOf(ctx context.Context) link.Enrolment {
	p := principalOf(ctx)
	return link.Enrolment{Token: p.Token, Project: p.Project, Tags: p.Tags, Pending: p.Pending}
}

// URLOfRequest returns the URL of the server as the client of a request knows it, from the request's context, or "".
func URLOfRequest(ctx context.Context) string {
	r := rest.RequestOf(ctx)
	switch {
	case r == nil || r.Host == "":
		return ""
	case access.OverTLS(r):
		return "https://" + r.Host
	default:
		return "http://" + r.Host
	}
}

// withAuth adds the caller to the context of every request, and rejects requests without
// a valid key except those for documentation and health, and those beyond the limits of their key or address. A request ends when its key is
// revoked or expires.
func (s *server) withAuth(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if needsKey(r.URL.Path) || isSignIn(r.URL.Path) {
			setPrivateHeaders(w.Header())
		}
		if needsKey(r.URL.Path) {
			p, g, err := s.access.Identify(r, !isLink(r.URL.Path))
			if err != nil {
				s.router.WriteError(w, r, err)
				return
			}
			caller.Identify(caller.Audit(r.Context()), p)
			if err := g.Allow(r.Context()); err != nil {
				s.router.WriteError(w, r, err)
				return
			}
			release, err := s.limits.AcquireRequest(p, g)
			if err != nil {
				s.router.WriteError(w, r, rest.TooMany(err))
				return
			}
			defer release()
			defer connlimit.MarkAuthenticated(r.Context())()
			ctx, unbind := g.Bind(context.WithValue(caller.NewContext(r.Context(), p), activeKeyCtxKey, g))
			defer unbind()
			r = r.WithContext(ctx)
			if !isLink(r.URL.Path) && !strings.HasSuffix(r.URL.Path, "/exec") {
				defer g.Interrupt(w)()
			}
		} else if err := s.allowAddress(r); err != nil {
			s.router.WriteError(w, r, err)
			return
		}
		next.ServeHTTP(w, rest.WithRequest(r))
	})
}

// allowAddress counts a request that needs no key. A worker's request for a session has a signature instead, and counts if that is wrong.
func (s *server) allowAddress(r *http.Request) error {
	if r.URL.Path == link.PathSession {
		return nil
	}
	return s.RateLimits.AllowAddress(r.Context(), connlimit.RemoteAddr(r.RemoteAddr))
}

// setPrivateHeaders prevents that caches store an answer and that pages of other origins read it, including other ports of the same
// host, to which browsers send the cookie. Files set their own Cache-Control.
func setPrivateHeaders(h http.Header) {
	h.Set("Cache-Control", "no-store")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
}

func needsKey(path string) bool {
	if path == pathOpenAPI || path == wire.Prefix+pathJobSchema || isSignIn(path) {
		return false
	}
	return strings.HasPrefix(path, wire.Prefix+"/") || strings.HasPrefix(path, pathIPFS) || path == pathDownload || isLink(path) || path == pathMetrics
}

// isSignIn reports whether a path is of those through which callers get a key.
func isSignIn(path string) bool {
	return path == access.PathSession || path == link.PathSession || path == link.PathKey || path == access.PathSignIn || strings.HasPrefix(path, access.PathSignIn+"/")
}

// BindToKey binds the context of a worker's session, which has the values of the request
// that opened it, to the key of that request. The caller must call release.
func BindToKey(ctx context.Context) (bound context.Context, release func()) {
	if g := activeKeyOf(ctx); g != nil {
		return g.Bind(ctx)
	}
	return context.WithCancel(ctx)
}

// isLink reports whether a path belongs to worker sessions, which end with a goodbye.
func isLink(path string) bool {
	return path == link.PathSocket || strings.HasPrefix(path, link.PathSocket+"/")
}

// activeKeyOf returns the key of a request; nil in a request that needs no key.
func activeKeyOf(ctx context.Context) *keyring.ActiveKey {
	g, _ := ctx.Value(activeKeyCtxKey).(*keyring.ActiveKey)
	return g
}

// maxCachedProjects is the maximum number of cached projects of jobs.
const maxCachedProjects = 10_000

// projectOf returns the project of a job.
func (s *server) projectOf(ctx context.Context, id muster.JobID) (string, error) {
	if project, ok := s.projects.Get(id); ok {
		return project, nil
	}
	job, err := s.Store.Job(ctx, id)
	if err != nil {
		return "", err
	}
	s.projects.Put(id, job.Project)
	return job.Project, nil
}
