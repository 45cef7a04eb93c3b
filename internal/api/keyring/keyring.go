// Package keyring authenticates API keys, ends what a key opened when it is revoked or expires, and limits the number of
// concurrent requests and streams per key.
package keyring

import (
	"cmp"
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/lru"
	"github.com/muster-dev/muster/internal/ratelimit"
	"github.com/muster-dev/muster/internal/store"
)

const (
	// maxCachedKeys is the number of cached keys. cacheTTL is short, so that a key that
	// another server revoked ends, too.
	maxCachedKeys = 1_000
	cacheTTL      = 30 * time.Second
	// maxSeen is the number of tokens that were valid once and are looked up again also from addresses that send many invalid ones.
	maxSeen = 10_000
)

// Ring finds keys by their tokens. It is safe for concurrent use.
type Ring struct {
	keys   store.KeyStore
	limits *ratelimit.Limiter
	seen   *lru.Cache[string, struct{}] // hashes of tokens that were valid

	mu     sync.Mutex
	epoch  int // counts revocations: a key that was read before one is not cached after it
	cache  map[string]cachedKey
	active map[string]*ActiveKey // keys in use, by id
}

type cachedKey struct {
	key   store.Key
	until time.Time
}

// New returns a Ring for the keys of a store. Requests without a valid key, and those of each key, have limits, which may be nil.
func New(keys store.KeyStore, limits *ratelimit.Limiter) *Ring {
	return &Ring{keys: keys, limits: limits, seen: lru.NewCounted[string, struct{}](maxSeen), cache: map[string]cachedKey{}, active: map[string]*ActiveKey{}}
}

// Authenticate returns the owner of a token that an address sent, and its active key, or an Unauthenticated error. The answer to
// an unknown token takes longer the more of them the address has sent. From an address beyond its limit, tokens are refused without a lookup unless
// they were valid before or are too long to be guessed.
func (r *Ring) Authenticate(ctx context.Context, from netip.Addr, token string) (auth.Principal, *ActiveKey, error) {
	if token == "" {
		if err := r.limits.AllowAddress(ctx, from); err != nil {
			return auth.Principal{}, nil, err
		}
		return auth.Principal{}, nil, muster.Errorf(muster.Unauthenticated,
			"an API key is required: send it as \"Authorization: Bearer mst_…\" (on the command line use --token-file or MUSTER_TOKEN)")
	}
	hash := auth.Hash(token)
	if _, seen := r.seen.Get(hash); !seen && !auth.IsGenerated(token) {
		if err := r.limits.Limited(ctx, from); err != nil {
			return auth.Principal{}, nil, err
		}
	}
	key, active, err := r.find(ctx, hash)
	switch muster.CodeOf(err) {
	case muster.NotFound:
		err = muster.Errorf(muster.Unauthenticated, "unknown API key: it was revoked or belongs to another server")
		fallthrough
	case muster.Unauthenticated, muster.Forbidden:
		return auth.Principal{}, nil, cmp.Or(r.limits.Failed(ctx, from), err)
	}
	if err != nil {
		return auth.Principal{}, nil, err
	}
	r.seen.Add(hash, struct{}{})
	return auth.Principal{KeyID: key.ID, Name: key.Name, Role: auth.Role(key.Role), Project: key.Project, Job: key.Job, Worker: key.Worker, Expires: key.ExpiresAt}, active, nil
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
		active = newActiveKey(key, r.limits, func() { r.deactivate(key.ID, expiredError(key)) })
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
