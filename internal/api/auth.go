package api

import (
	"context"
	"net/http"
	"strings"
	"sync"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/caller"
	"github.com/muster-dev/muster/internal/api/keyring"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/connlimit"
	"github.com/muster-dev/muster/internal/link"
	"github.com/muster-dev/muster/internal/store"
)

type contextKey int

const (
	requestCtxKey contextKey = iota
	activeKeyCtxKey
)

// principalOf returns who asks. In a request that needs no key it is nobody.
func principalOf(ctx context.Context) auth.Principal { return caller.FromContext(ctx) }

// requestOf returns the request that ctx is of.
func requestOf(ctx context.Context) *http.Request {
	r, _ := ctx.Value(requestCtxKey).(*http.Request)
	return r
}

// WorkerOfRequest returns the worker whose own key a request to Config.LinkSocket or LinkPoll
// carries. Its errors are Unauthenticated or Forbidden.
func WorkerOfRequest(r *http.Request) (muster.WorkerID, error) {
	p := principalOf(r.Context())
	return p.Worker, auth.Authorize(p, auth.ConnectWorker, auth.Object{})
}

// withAuth puts the caller into the context of every request, and refuses
// requests without a valid key except those for the documentation and for health. A request ends
// with its key.
func (s *server) withAuth(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if needsKey(r.URL.Path) {
			setPrivateHeaders(w.Header())
			p, g, err := s.identify(r)
			if err != nil {
				s.writeError(w, r, err)
				return
			}
			release, err := s.limits.AcquireRequest(p, g)
			if err != nil {
				s.writeError(w, r, tooManyError{err})
				return
			}
			defer release()
			defer connlimit.MarkAuthenticated(r.Context())()
			ctx, unbind := g.Bind(context.WithValue(caller.NewContext(r.Context(), p), activeKeyCtxKey, g))
			defer unbind()
			r = r.WithContext(ctx)
			if !isLink(r.URL.Path) {
				defer g.Interrupt(w)()
			}
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), requestCtxKey, r)))
	})
}

// setPrivateHeaders keeps an answer out of caches and out of pages of other origins, also of other ports of the same host, to which browsers
// send the cookie. Files set a Cache-Control of their own.
func setPrivateHeaders(h http.Header) {
	h.Set("Cache-Control", "no-store")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("X-Content-Type-Options", "nosniff")
}

func needsKey(path string) bool {
	if path == pathOpenAPI || path == wire.Prefix+pathJobSchema || path == pathSession {
		return false
	}
	return strings.HasPrefix(path, wire.Prefix+"/") || strings.HasPrefix(path, pathIPFS) || path == pathDownload || isLink(path) || path == pathMetrics
}

// BindToKey binds the context of a worker's session, which has the values of the request
// that opened it, to the key of that request. release must be called.
func BindToKey(ctx context.Context) (bound context.Context, release func()) {
	if g := activeKeyOf(ctx); g != nil {
		return g.Bind(ctx)
	}
	return context.WithCancel(ctx)
}

// isLink says whether requests to a path belong to sessions of workers, which end by a goodbye.
func isLink(path string) bool {
	return path == link.PathSocket || strings.HasPrefix(path, link.PathSocket+"/")
}

// activeKeyOf returns the grant of the key of a request. In a request that needs no key there is none.
func activeKeyOf(ctx context.Context) *keyring.ActiveKey {
	g, _ := ctx.Value(activeKeyCtxKey).(*keyring.ActiveKey)
	return g
}

// authorizeJob checks that the caller may do verb to a job. A job of a project that
// is none of the caller's business looks as if it were not there.
func (s *server) authorizeJob(ctx context.Context, id muster.JobID, verb auth.Verb) error {
	p := principalOf(ctx)
	if p.Job != 0 && p.Job != id {
		return jobNotFound(id)
	}
	if p.Project == "" {
		return nil // route.go has checked verb
	}
	project, err := s.projects.projectOf(ctx, id)
	if err != nil {
		return err
	}
	if auth.Authorize(p, verb, auth.Object{Project: project, Job: id}) != nil {
		return jobNotFound(id)
	}
	return nil
}

func jobNotFound(id muster.JobID) error {
	return muster.Errorf(muster.NotFound, "there is no job %d", id)
}

// maxCachedProjects is how many jobs' projects are remembered.
const maxCachedProjects = 10_000

// projectCache knows the projects of jobs, which never change.
type projectCache struct {
	store store.Reader

	mu    sync.Mutex
	byJob map[muster.JobID]string
}

func newProjectCache(st store.Reader) *projectCache {
	return &projectCache{store: st, byJob: map[muster.JobID]string{}}
}

func (p *projectCache) projectOf(ctx context.Context, id muster.JobID) (string, error) {
	p.mu.Lock()
	project, ok := p.byJob[id]
	p.mu.Unlock()
	if ok {
		return project, nil
	}
	job, err := p.store.Job(ctx, id)
	if err != nil {
		return "", err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.byJob) >= maxCachedProjects {
		clear(p.byJob)
	}
	p.byJob[id] = job.Project
	return job.Project, nil
}
