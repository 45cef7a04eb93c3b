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
	// cachedKeys is how many keys are remembered, and cachedFor how long, so that a key
	// revoked through another server ends too.
	cachedKeys = 1_000
	cachedFor  = 30 * time.Second
)

// Ring finds keys by their tokens, and remembers those in use.
type Ring struct {
	keys store.KeyStore

	mu     sync.Mutex
	epoch  int // counts revocations: what was read before one is not remembered after it
	found  map[string]cachedKey
	grants map[string]*Grant // of keys that were used, by id, until they are revoked or expire
}

type cachedKey struct {
	key   store.Key
	until time.Time
}

// New returns a Ring of the keys of a store.
func New(keys store.KeyStore) *Ring {
	return &Ring{keys: keys, found: map[string]cachedKey{}, grants: map[string]*Grant{}}
}

// Principal returns whose a token is, with what ends when its key does, or an Unauthenticated error.
func (k *Ring) Principal(ctx context.Context, token string) (auth.Principal, *Grant, error) {
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
	return auth.Principal{KeyID: key.ID, Name: key.Name, Role: auth.Role(key.Role), Project: key.Project, Job: key.Job, Worker: key.Worker, Expires: key.ExpiresAt}, g, nil
}

// find returns a key that has not expired, and its grant. A key that is revoked meanwhile is looked
// up again, so that no grant is returned which its revocation did not see.
func (k *Ring) find(ctx context.Context, hash string) (store.Key, *Grant, error) {
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
func (k *Ring) granted(key store.Key) (store.Key, *Grant, error) {
	if key.ExpiresAt != 0 && muster.NewTime(time.Now()) >= key.ExpiresAt {
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
func (k *Ring) drop(id string, why error) {
	k.mu.Lock()
	g := k.grants[id]
	delete(k.grants, id)
	k.mu.Unlock()
	if g != nil {
		g.stop(why)
	}
}

// Revoke deletes a key and the links that it made for good, and ends what they opened.
func (k *Ring) Revoke(ctx context.Context, key store.Key) error {
	err := k.keys.DeleteKey(ctx, key.ID)
	k.mu.Lock()
	k.epoch++
	clear(k.found)
	k.mu.Unlock()
	if err == nil || muster.CodeOf(err) == muster.NotFound {
		k.drop(key.ID, errRevoked(key))
		for _, id := range k.children(key.ID) {
			k.drop(id, errParentRevoked)
		}
	}
	return err
}

// children lists the keys in use that a key made.
func (k *Ring) children(id string) (ids []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for child, g := range k.grants {
		if g.parent == id {
			ids = append(ids, child)
		}
	}
	return ids
}
