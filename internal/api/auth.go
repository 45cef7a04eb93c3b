package api

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/link"
	"github.com/muster-dev/muster/internal/store"
)

type contextKey int

const (
	principalKey contextKey = iota
	requestKey
)

// principalOf returns who asks. In a request that needs no key it is nobody.
func principalOf(ctx context.Context) auth.Principal {
	p, _ := ctx.Value(principalKey).(auth.Principal)
	return p
}

// requestOf returns the request that ctx is of.
func requestOf(ctx context.Context) *http.Request {
	r, _ := ctx.Value(requestKey).(*http.Request)
	return r
}

// LinkedWorker returns the worker whose own key a request to Config.LinkSocket or LinkPoll
// carries. Its errors are Unauthenticated or Forbidden.
func LinkedWorker(r *http.Request) (muster.WorkerID, error) {
	p := principalOf(r.Context())
	return p.Worker, auth.Can(p, auth.LinkWorker, auth.Object{})
}

// authenticated puts the caller into the context of every request, and refuses
// requests without a valid key except those for the documentation and for health.
func (s *server) authenticated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if needsKey(r.URL.Path) {
			p, err := s.keyring.principal(r.Context(), auth.Bearer(r.Header.Get("Authorization")))
			if err != nil {
				s.refuse(w, r, err)
				return
			}
			r = r.WithContext(context.WithValue(r.Context(), principalKey, p))
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), requestKey, r)))
	})
}

func needsKey(path string) bool {
	if path == pathOpenAPI {
		return false
	}
	return strings.HasPrefix(path, wire.Prefix+"/") || strings.HasPrefix(path, pathIPFS) || path == link.PathSocket || strings.HasPrefix(path, link.PathSocket+"/")
}

const (
	// cachedKeys is how many keys are remembered, and cachedFor how long, so that a key
	// revoked through another server ends too.
	cachedKeys = 1_000
	cachedFor  = 30 * time.Second
)

// keyring finds keys by their tokens, and remembers those in use.
type keyring struct {
	keys store.Keys

	mu    sync.Mutex
	epoch int // counts revocations: what was read before one is not remembered after it
	found map[string]cachedKey
}

type cachedKey struct {
	key   store.Key
	until time.Time
}

func newKeyring(keys store.Keys) *keyring { return &keyring{keys: keys, found: map[string]cachedKey{}} }

// principal returns whose a token is, or an Unauthenticated error.
func (k *keyring) principal(ctx context.Context, token string) (auth.Principal, error) {
	if token == "" {
		return auth.Principal{}, muster.Errorf(muster.Unauthenticated,
			"this needs an API key: send it as \"Authorization: Bearer mst_…\" (the command line takes --token-file or MUSTER_TOKEN)")
	}
	key, err := k.find(ctx, auth.Hash(token))
	if muster.CodeOf(err) == muster.NotFound {
		return auth.Principal{}, muster.Errorf(muster.Unauthenticated, "the API key is not known here: it was revoked, or is of another server")
	}
	if err != nil {
		return auth.Principal{}, err
	}
	if key.ExpiresAt != 0 && muster.TimeOf(time.Now()) >= key.ExpiresAt {
		return auth.Principal{}, muster.Errorf(muster.Unauthenticated, "the API key %q ended at %s: ask for a new one", key.Name, key.ExpiresAt)
	}
	return auth.Principal{KeyID: key.ID, Name: key.Name, Role: auth.Role(key.Role), Project: key.Project, Worker: key.Worker}, nil
}

func (k *keyring) find(ctx context.Context, hash string) (store.Key, error) {
	now := time.Now()
	k.mu.Lock()
	c, ok := k.found[hash]
	epoch := k.epoch
	k.mu.Unlock()
	if ok && now.Before(c.until) {
		return c.key, nil
	}
	key, err := k.keys.KeyByHash(ctx, hash)
	if err != nil {
		return store.Key{}, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.epoch == epoch {
		if len(k.found) >= cachedKeys {
			clear(k.found)
		}
		k.found[hash] = cachedKey{key: key, until: now.Add(cachedFor)}
	}
	return key, nil
}

// revoke deletes a key for good.
func (k *keyring) revoke(ctx context.Context, id string) error {
	err := k.keys.DeleteKey(ctx, id)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.epoch++
	clear(k.found)
	return err
}

// mayTouch checks that the caller may do verb to a job. A job of a project that
// is none of the caller's business looks as if it were not there.
func (s *server) mayTouch(ctx context.Context, id muster.JobID, verb auth.Verb) error {
	p := principalOf(ctx)
	if p.Project == "" {
		return nil // route.go has checked verb
	}
	project, err := s.projects.of(ctx, id)
	if err != nil {
		return err
	}
	if auth.Can(p, verb, auth.Object{Project: project}) != nil {
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
