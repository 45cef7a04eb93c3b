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
	"github.com/muster-dev/muster/internal/connlimit"
	"github.com/muster-dev/muster/internal/store"
)

type contextKey int

const (
	principalKey contextKey = iota
	requestKey
	grantKey
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
// requests without a valid key except those for the documentation and for health. A request ends
// with its key.
func (s *server) authenticated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if needsKey(r.URL.Path) {
			p, g, err := s.keyring.principal(r.Context(), auth.Bearer(r.Header.Get("Authorization")))
			if err != nil {
				s.refuse(w, r, err)
				return
			}
			leave, err := s.bounds.enter(p.Role, g)
			if err != nil {
				s.refuse(w, r, err)
				return
			}
			defer leave()
			defer connlimit.Authenticated(r.Context())()
			ctx, release := g.bind(context.WithValue(context.WithValue(r.Context(), principalKey, p), grantKey, g))
			defer release()
			r = r.WithContext(ctx)
			if !isLink(r.URL.Path) {
				defer g.interrupt(w)()
			}
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), requestKey, r)))
	})
}

func needsKey(path string) bool {
	if path == pathOpenAPI {
		return false
	}
	return strings.HasPrefix(path, wire.Prefix+"/") || strings.HasPrefix(path, pathIPFS) || isLink(path)
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

	mu     sync.Mutex
	epoch  int // counts revocations: what was read before one is not remembered after it
	found  map[string]cachedKey
	grants map[string]*grant // of keys that were used, by id, until they are revoked or expire
}

type cachedKey struct {
	key   store.Key
	until time.Time
}

func newKeyring(keys store.Keys) *keyring {
	return &keyring{keys: keys, found: map[string]cachedKey{}, grants: map[string]*grant{}}
}

// principal returns whose a token is, with what ends when its key does, or an Unauthenticated error.
func (k *keyring) principal(ctx context.Context, token string) (auth.Principal, *grant, error) {
	if token == "" {
		return auth.Principal{}, nil, muster.Errorf(muster.Unauthenticated,
			"this needs an API key: send it as \"Authorization: Bearer mst_…\" (the command line takes --token-file or MUSTER_TOKEN)")
	}
	key, g, err := k.find(ctx, auth.Hash(token))
	if muster.CodeOf(err) == muster.NotFound {
		return auth.Principal{}, nil, muster.Errorf(muster.Unauthenticated, "the API key is not known here: it was revoked, or is of another server")
	}
	if err != nil {
		return auth.Principal{}, nil, err
	}
	return auth.Principal{KeyID: key.ID, Name: key.Name, Role: auth.Role(key.Role), Project: key.Project, Worker: key.Worker}, g, nil
}

// find returns a key that has not expired, and its grant. A key that is revoked meanwhile is looked
// up again, so that no grant is returned which its revocation did not see.
func (k *keyring) find(ctx context.Context, hash string) (store.Key, *grant, error) {
	for {
		k.mu.Lock()
		c, ok := k.found[hash]
		epoch := k.epoch
		if ok && time.Now().Before(c.until) {
			defer k.mu.Unlock()
			return k.granted(c.key)
		}
		k.mu.Unlock()
		key, err := k.keys.KeyByHash(ctx, hash)
		if err != nil {
			return store.Key{}, nil, err
		}
		k.mu.Lock()
		if k.epoch == epoch {
			defer k.mu.Unlock()
			if len(k.found) >= cachedKeys {
				clear(k.found)
			}
			k.found[hash] = cachedKey{key: key, until: time.Now().Add(cachedFor)}
			return k.granted(key)
		}
		k.mu.Unlock()
	}
}

// granted returns a key with its grant. The caller holds mu.
func (k *keyring) granted(key store.Key) (store.Key, *grant, error) {
	if key.ExpiresAt != 0 && muster.TimeOf(time.Now()) >= key.ExpiresAt {
		return store.Key{}, nil, errExpired(key)
	}
	g := k.grants[key.ID]
	if g == nil {
		g = newGrant(key, func() { k.drop(key.ID, errExpired(key)) })
		k.grants[key.ID] = g
	}
	return key, g, nil
}

// drop ends the grant of a key, if there is one.
func (k *keyring) drop(id string, why error) {
	k.mu.Lock()
	g := k.grants[id]
	delete(k.grants, id)
	k.mu.Unlock()
	if g != nil {
		g.stop(why)
	}
}

// revoke deletes a key for good, and ends what it opened.
func (k *keyring) revoke(ctx context.Context, key store.Key) error {
	err := k.keys.DeleteKey(ctx, key.ID)
	k.mu.Lock()
	k.epoch++
	clear(k.found)
	k.mu.Unlock()
	if err == nil || muster.CodeOf(err) == muster.NotFound {
		k.drop(key.ID, errRevoked(key))
	}
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
