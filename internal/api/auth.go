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
	requestKey contextKey = iota
	grantKey
)

// principalOf returns who asks. In a request that needs no key it is nobody.
func principalOf(ctx context.Context) auth.Principal { return caller.Of(ctx) }

// requestOf returns the request that ctx is of.
func requestOf(ctx context.Context) *http.Request {
	r, _ := ctx.Value(requestKey).(*http.Request)
	return r
}

// LinkedWorker returns the worker whose own key a request to Config.LinkSocket or LinkPoll
// carries. Its errors are Unauthenticated or Forbidden.
func LinkedWorker(r *http.Request) (muster.WorkerID, error) {
	p := principalOf(r.Context())
	return p.Worker, auth.Authorize(p, auth.ConnectWorker, auth.Object{})
}

// authenticated puts the caller into the context of every request, and refuses
// requests without a valid key except those for the documentation and for health. A request ends
// with its key.
func (s *server) authenticated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if needsKey(r.URL.Path) {
			private(w.Header())
			p, g, err := s.identify(r)
			if err != nil {
				s.refuse(w, r, err)
				return
			}
			leave, err := s.bounds.Enter(p, g)
			if err != nil {
				s.refuse(w, r, tooManyError{err})
				return
			}
			defer leave()
			defer connlimit.MarkAuthenticated(r.Context())()
			ctx, release := g.Bind(context.WithValue(caller.With(r.Context(), p), grantKey, g))
			defer release()
			r = r.WithContext(ctx)
			if !isLink(r.URL.Path) {
				defer g.Interrupt(w)()
			}
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), requestKey, r)))
	})
}

// private keeps an answer out of caches and out of pages of other origins, also of other ports of the same host, to which browsers
// send the cookie. Files set a Cache-Control of their own.
func private(h http.Header) {
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

// WhileKeyIsValid binds the context of a worker's session, which has the values of the request
// that opened it, to the key of that request. release must be called.
func WhileKeyIsValid(ctx context.Context) (bound context.Context, release func()) {
	if g := grantOf(ctx); g != nil {
		return g.Bind(ctx)
	}
	return context.WithCancel(ctx)
}

// isLink says whether requests to a path belong to sessions of workers, which end by a goodbye.
func isLink(path string) bool {
	return path == link.PathSocket || strings.HasPrefix(path, link.PathSocket+"/")
}

// grantOf returns the grant of the key of a request. In a request that needs no key there is none.
func grantOf(ctx context.Context) *keyring.Grant {
	g, _ := ctx.Value(grantKey).(*keyring.Grant)
	return g
}

// mayTouch checks that the caller may do verb to a job. A job of a project that
// is none of the caller's business looks as if it were not there.
func (s *server) mayTouch(ctx context.Context, id muster.JobID, verb auth.Verb) error {
	p := principalOf(ctx)
	if p.Job != 0 && p.Job != id {
		return noJob(id)
	}
	if p.Project == "" {
		return nil // route.go has checked verb
	}
	project, err := s.projects.of(ctx, id)
	if err != nil {
		return err
	}
	if auth.Authorize(p, verb, auth.Object{Project: project, Job: id}) != nil {
		return noJob(id)
	}
	return nil
}

func noJob(id muster.JobID) error { return muster.Errorf(muster.NotFound, "there is no job %d", id) }

// cachedProjects is how many jobs' projects are remembered.
const cachedProjects = 10_000

// projects knows the projects of jobs, which never change.
type projects struct {
	jobs store.Reader

	mu    sync.Mutex
	known map[muster.JobID]string
}

func newProjects(jobs store.Reader) *projects {
	return &projects{jobs: jobs, known: map[muster.JobID]string{}}
}

func (p *projects) of(ctx context.Context, id muster.JobID) (string, error) {
	p.mu.Lock()
	project, ok := p.known[id]
	p.mu.Unlock()
	if ok {
		return project, nil
	}
	job, err := p.jobs.Job(ctx, id)
	if err != nil {
		return "", err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.known) >= cachedProjects {
		clear(p.known)
	}
	p.known[id] = job.Project
	return job.Project, nil
}
