package keyring

import (
	"context"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/store"
)

const (
	// maxCachedKeys is how many keys are remembered, and cacheTTL how long, so that a key
	// revoked through another server ends too.
	maxCachedKeys = 1_000
	cacheTTL      = 30 * time.Second
)

// Ring finds keys by their tokens, and remembers those in use.
type Ring struct {
	keys store.KeyStore

	mu     sync.Mutex
	epoch  int // counts revocations: what was read before one is not remembered after it
	cache  map[string]cachedKey
	active map[string]*ActiveKey // of keys that were used, by id, until they are revoked or expire
}

type cachedKey struct {
	key   store.Key
	until time.Time
}

// New returns a Ring of the keys of a store.
func New(keys store.KeyStore) *Ring {
	return &Ring{keys: keys, cache: map[string]cachedKey{}, active: map[string]*ActiveKey{}}
}

// Authenticate returns whose a token is, with what ends when its key does, or an Unauthenticated error.
func (r *Ring) Authenticate(ctx context.Context, token string) (auth.Principal, *ActiveKey, error) {
	if token == "" {
		return auth.Principal{}, nil, muster.Errorf(muster.Unauthenticated,
			"this needs an API key: send it as \"Authorization: Bearer mst_…\" (the command line takes --token-file or MUSTER_TOKEN)")
	}
	key, active, err := r.find(ctx, auth.Hash(token))
	if muster.CodeOf(err) == muster.NotFound {
		return auth.Principal{}, nil, muster.Errorf(muster.Unauthenticated, "the API key is not known here: it was revoked, or is of another server")
	}
	if err != nil {
		return auth.Principal{}, nil, err
	}
	return auth.Principal{KeyID: key.ID, Name: key.Name, Role: auth.Role(key.Role), Project: key.Project, Job: key.Job, Worker: key.Worker, Expires: key.ExpiresAt}, active, nil
}

// find returns a key that has not expired, and its grant. A key that is revoked meanwhile is looked
// up again, so that no grant is returned which its revocation did not see.
func (r *Ring) find(ctx context.Context, hash string) (store.Key, *ActiveKey, error) {
	for {
		r.mu.Lock()
		c, ok := r.cache[hash]
		epoch := r.epoch
		if ok && time.Now().Before(c.until) {
			defer r.mu.Unlock()
			return r.activate(c.key)
		}
		r.mu.Unlock()
		key, err := r.keys.KeyByHash(ctx, hash)
		if err != nil {
			return store.Key{}, nil, err
		}
		r.mu.Lock()
		if r.epoch == epoch {
			defer r.mu.Unlock()
			if len(r.cache) >= maxCachedKeys {
				clear(r.cache)
			}
			r.cache[hash] = cachedKey{key: key, until: time.Now().Add(cacheTTL)}
			return r.activate(key)
		}
		r.mu.Unlock()
	}
}

// activate returns a key with its grant. The caller holds mu.
func (r *Ring) activate(key store.Key) (store.Key, *ActiveKey, error) {
	if key.ExpiresAt != 0 && muster.NewTime(time.Now()) >= key.ExpiresAt {
		return store.Key{}, nil, expiredError(key)
	}
	active := r.active[key.ID]
	if active == nil {
		active = newActiveKey(key, func() { r.deactivate(key.ID, expiredError(key)) })
		r.active[key.ID] = active
	}
	return key, active, nil
}

// deactivate ends the grant of a key, if there is one.
func (r *Ring) deactivate(id string, cause error) {
	r.mu.Lock()
	active := r.active[id]
	delete(r.active, id)
	r.mu.Unlock()
	if active != nil {
		active.end(cause)
	}
}

// Revoke deletes a key and the links that it made for good, and ends what they opened.
func (r *Ring) Revoke(ctx context.Context, key store.Key) error {
	err := r.keys.DeleteKey(ctx, key.ID)
	r.mu.Lock()
	r.epoch++
	clear(r.cache)
	r.mu.Unlock()
	if err == nil || muster.CodeOf(err) == muster.NotFound {
		r.deactivate(key.ID, revokedError(key))
		for _, id := range r.children(key.ID) {
			r.deactivate(id, errParentRevoked)
		}
	}
	return err
}

// children lists the keys in use that a key made.
func (r *Ring) children(id string) (ids []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for child, active := range r.active {
		if active.parent == id {
			ids = append(ids, child)
		}
	}
	return ids
}
