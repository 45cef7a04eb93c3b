// Package keyring authenticates API keys, ends what a key opened when it is revoked or expires, and limits the number of
// concurrent requests and streams per key.
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
	// maxCachedKeys is the number of cached keys. cacheTTL is short, so that a key that
	// another server revoked ends, too.
	maxCachedKeys = 1_000
	cacheTTL      = 30 * time.Second
)

// Ring finds keys by their tokens. It is safe for concurrent use.
type Ring struct {
	keys store.KeyStore

	mu     sync.Mutex
	epoch  int // counts revocations: a key that was read before one is not cached after it
	cache  map[string]cachedKey
	active map[string]*ActiveKey // keys in use, by id
}

type cachedKey struct {
	key   store.Key
	until time.Time
}

// New returns a Ring for the keys of a store.
func New(keys store.KeyStore) *Ring {
	return &Ring{keys: keys, cache: map[string]cachedKey{}, active: map[string]*ActiveKey{}}
}

// Authenticate returns the owner of a token and its active key, or an Unauthenticated error.
func (r *Ring) Authenticate(ctx context.Context, token string) (auth.Principal, *ActiveKey, error) {
	if token == "" {
		return auth.Principal{}, nil, muster.Errorf(muster.Unauthenticated,
			"an API key is required: send it as \"Authorization: Bearer mst_…\" (on the command line use --token-file or MUSTER_TOKEN)")
	}
	key, active, err := r.find(ctx, auth.Hash(token))
	if muster.CodeOf(err) == muster.NotFound {
		return auth.Principal{}, nil, muster.Errorf(muster.Unauthenticated, "unknown API key: it was revoked or belongs to another server")
	}
	if err != nil {
		return auth.Principal{}, nil, err
	}
	return principal(&key), active, nil
}

func principal(key *store.Key) auth.Principal {
	p := auth.Principal{
		KeyID: key.ID, Name: key.Name, Role: auth.Role(key.Role), Project: key.Project, Job: key.Job, Worker: key.Worker, Expires: key.ExpiresAt,
		Token: key.JoinedBy, Pending: key.Approval && key.Worker != "",
	}
	if b := key.Bounds; b != nil {
		p.Tags, p.Addresses = b.Tags, b.Addresses
	}
	p.Limited = key.Worker == "" && (key.Uses != nil || key.Approval || len(p.Tags) > 0)
	return p
}

// find returns a key that has not expired, and its ActiveKey. If a key is revoked meanwhile, it looks the key
// up again, so that every ActiveKey is known to a revocation.
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

// activate returns a key with its ActiveKey. The caller holds mu.
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

// deactivate ends the ActiveKey with an id, if there is one.
func (r *Ring) deactivate(id string, cause error) {
	r.mu.Lock()
	active := r.active[id]
	delete(r.active, id)
	r.mu.Unlock()
	if active != nil {
		active.end(cause)
	}
}

// Replace stores a key that replaces the one with its id, and ends what that one opened. The links that it created stay.
func (r *Ring) Replace(ctx context.Context, key store.Key) error {
	err := r.keys.PutKey(ctx, key)
	r.mu.Lock()
	r.epoch++
	clear(r.cache)
	r.mu.Unlock()
	if err == nil {
		r.deactivate(key.ID, muster.Errorf(muster.Unauthenticated, "the API key %q has a new secret", key.Name))
	}
	return err
}

// Extended reads a key again that no longer expires. What it opened stays open.
func (r *Ring) Extended(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.epoch++
	clear(r.cache)
	if k := r.active[id]; k != nil && k.expiryTimer != nil {
		k.expiryTimer.Stop()
	}
}

// Revoke deletes a key and the links that it created, and ends what they opened.
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

// children lists the keys in use that a key created.
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
