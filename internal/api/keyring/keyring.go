// Package keyring authenticates API keys, ends what a key opened when it is revoked or expires, records when keys were used, and
// limits the number of concurrent requests and streams per key.
package keyring

import (
	"cmp"
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/sessiontoken"
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
	// maxJobs is the number of jobs whose requests with signed URLs are counted.
	maxJobs = 1_000
)

// Tokens verifies the tokens of workers' sessions.
type Tokens interface {
	// Verify returns the hash of the key of the worker for which a token was issued, and the secret of its session, or an Unauthenticated error.
	Verify(token string) (keyHash string, secret []byte, err error)
}

// Ring finds keys by their tokens. It is safe for concurrent use.
type Ring struct {
	keys   store.KeyStore
	log    *slog.Logger
	tokens Tokens
	limits *ratelimit.Limiter
	seen   *lru.Cache[string, struct{}] // hashes of tokens that were valid, and of public keys
	recall sync.Once                    // of the workers' keys
	ofJobs *lru.Cache[muster.JobID, *ActiveKey]

	mu     sync.Mutex
	epoch  int // counts revocations: a key that was read before one is not cached after it
	cache  map[string]cachedKey
	active map[string]*ActiveKey // keys in use, by id; the keys of these values are guarded by mu

	quarantined map[string]string // why, by id of a key whose mark is not stored yet
}

type cachedKey struct {
	key   store.Key
	until time.Time
}

// New returns a Ring for the keys of a store, and the session tokens of workers. Requests without a valid key, and those of each key, have limits, which may be nil.
func New(keys store.KeyStore, tokens Tokens, limits *ratelimit.Limiter, log *slog.Logger) *Ring {
	return &Ring{keys: keys, tokens: tokens, log: log, limits: limits, seen: lru.NewCounted[string, struct{}](maxSeen), cache: map[string]cachedKey{}, active: map[string]*ActiveKey{}, quarantined: map[string]string{}, ofJobs: lru.NewCounted[muster.JobID, *ActiveKey](maxJobs)}
}

// OfJob returns what counts the requests with signed URLs of the artifacts of a job, which have no key. It never ends.
func (r *Ring) OfJob(job muster.JobID) *ActiveKey {
	if k, ok := r.ofJobs.Get(job); ok {
		return k
	}
	return r.ofJobs.Add(job, newActiveKey(r.limits))
}

// Authenticate returns the owner of a token that an address sent, and its active key, or an Unauthenticated error. The answer to
// an unknown token takes longer the more of them the address has sent. From an address beyond its limit, tokens are refused without a lookup unless
// they were valid before or are have the form of generated ones, which cannot be guessed. It records the use of the key.
func (r *Ring) Authenticate(ctx context.Context, from netip.Addr, token string) (auth.Principal, *ActiveKey, error) {
	if token == "" {
		if err := r.limits.AllowAddress(ctx, from); err != nil {
			return auth.Principal{}, nil, err
		}
		return auth.Principal{}, nil, muster.Errorf(muster.Unauthenticated,
			"an API key is required: send it as \"Authorization: Bearer mst_…\" (on the command line use --token-file or MUSTER_TOKEN)")
	}
	if sessiontoken.IsToken(token) {
		hash, secret, err := r.tokens.Verify(token)
		if err != nil {
			r.limits.Stale(ctx, from) // workers request another token upon this error only
			return auth.Principal{}, nil, err
		}
		p, active, err := r.ByHash(ctx, from, hash)
		p.Secret = secret
		return p, active, err
	}
	hash := auth.Hash(token)
	if _, seen := r.seen.Get(hash); !seen && auth.Prefix(token) == "" {
		if err := r.limits.Limited(ctx, from); err != nil {
			return auth.Principal{}, nil, err
		}
	}
	p, active, err := r.ByHash(ctx, from, hash)
	if err == nil {
		r.seen.Add(hash, struct{}{})
	}
	return p, active, err
}

// ByPublicKey is Authenticate for the hash of a worker's public key, whose signature the caller checks. From an address beyond its limit, only keys that
// were found before are looked up, and those of workers that joined before this process started.
func (r *Ring) ByPublicKey(ctx context.Context, from netip.Addr, hash string) (auth.Principal, *ActiveKey, error) {
	r.recall.Do(func() { r.recallWorkers(context.WithoutCancel(ctx)) })
	if _, seen := r.seen.Get(hash); !seen {
		if err := r.limits.Limited(ctx, from); err != nil {
			return auth.Principal{}, nil, err
		}
	}
	p, active, err := r.ByHash(ctx, from, hash)
	if err == nil {
		r.seen.Add(hash, struct{}{})
	}
	return p, active, err
}

// Joined says that a worker has joined with the public key with a hash.
func (r *Ring) Joined(hash string) { r.seen.Add(hash, struct{}{}) }

// recallWorkers makes the keys of workers seen, so that a fleet whose address is at its limit returns after a restart.
func (r *Ring) recallWorkers(ctx context.Context) {
	keys, err := r.keys.ListKeys(ctx)
	if err != nil {
		r.log.WarnContext(ctx, "cannot read the keys of workers", slog.Any("error", err))
	}
	for i := range keys {
		if keys[i].Worker != "" {
			r.seen.Add(keys[i].Hash, struct{}{})
		}
	}
}

// ByHash is Authenticate for the hash of a key. If only the address may not use the key, it returns the owner with the Forbidden error.
func (r *Ring) ByHash(ctx context.Context, from netip.Addr, hash string) (auth.Principal, *ActiveKey, error) {
	key, active, err := r.find(ctx, hash)
	if muster.CodeOf(err) == muster.NotFound {
		err = muster.Errorf(muster.Unauthenticated, "unknown API key: it was revoked or belongs to another server")
	}
	if code := muster.CodeOf(err); code == muster.Unauthenticated || code == muster.Forbidden {
		return auth.Principal{}, nil, r.failed(ctx, from, err)
	}
	if err != nil {
		return auth.Principal{}, nil, err
	}
	p := principal(&key)
	if err := p.CheckAddress(from); err != nil {
		return p, nil, err
	}
	active.use(from)
	return p, active, nil
}

// failed counts a request without a valid key, and returns the error of its answer when that may be sent.
func (r *Ring) failed(ctx context.Context, from netip.Addr, err error) error {
	return cmp.Or(r.limits.Failed(ctx, from), err)
}

func principal(key *store.Key) auth.Principal {
	p := auth.Principal{
		KeyID: key.ID, Name: key.Name, Role: auth.Role(key.Role), Project: key.Project, Job: key.Job, Worker: key.Worker, Expires: key.ExpiresAt,
		Token: key.JoinedBy, Pending: key.Approval && key.Worker != "",
	}
	if key.Rotated {
		p.KeyID = key.Parent
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
	if why := cmp.Or(key.Quarantined, r.quarantined[key.ID]); why != "" {
		return store.Key{}, nil, QuarantinedError(key.Worker, why)
	}
	if key.ExpiresAt != 0 && muster.NewTime(time.Now()) >= key.ExpiresAt {
		return store.Key{}, nil, expiredError(key)
	}
	active := r.active[key.ID]
	if active == nil {
		active = newActiveKey(r.limits)
		r.assign(active, key)
	}
	return key, active, nil
}

// assign makes active that of a key, with which it expires. The caller holds mu.
func (r *Ring) assign(active *ActiveKey, key store.Key) {
	active.stopTimer()
	active.key = key
	r.active[key.ID] = active
	if key.ExpiresAt != 0 {
		active.expiryTimer = time.AfterFunc(time.Until(key.ExpiresAt.Std()), func() { r.expire(active) })
	}
}

// expire ends an ActiveKey whose key has expired, and has no new expiry.
func (r *Ring) expire(active *ActiveKey) {
	r.mu.Lock()
	key := active.key
	expired := key.ExpiresAt != 0 && muster.NewTime(time.Now()) >= key.ExpiresAt
	if expired && r.active[key.ID] == active {
		delete(r.active, key.ID)
	}
	r.mu.Unlock()
	if expired {
		active.cancel(expiredError(key))
	}
}

// deactivate ends the ActiveKey with an id, if there is one.
func (r *Ring) deactivate(id string, cause error) {
	r.mu.Lock()
	active := r.active[id]
	delete(r.active, id)
	if active != nil {
		active.stopTimer()
	}
	r.mu.Unlock()
	if active != nil {
		active.cancel(cause)
	}
}

// Rotate stores a key with a new secret. What its old secret opened ends at once or, with rotated, continues under that key, which has
// the old secret. Earlier ones have new expiries. The links that the key created stay.
func (r *Ring) Rotate(ctx context.Context, key store.Key, rotated *store.Key, earlier []store.Key) error {
	keys := append([]store.Key{key}, earlier...) // first, so that the old secret is free
	if rotated != nil {
		keys = append(keys, *rotated)
	}
	err := r.keys.PutKeys(ctx, keys...)
	r.mu.Lock()
	r.epoch++
	clear(r.cache)
	if err == nil {
		for i := range earlier {
			if active := r.active[earlier[i].ID]; active != nil {
				r.assign(active, earlier[i])
			}
		}
		if active := r.active[key.ID]; active != nil && rotated != nil {
			delete(r.active, key.ID)
			r.assign(active, *rotated)
		}
	}
	r.mu.Unlock()
	if err == nil && rotated == nil {
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
		for _, child := range r.children(key.ID) {
			var cause error = errParentRevoked
			if child.Rotated {
				cause = revokedError(key)
			}
			r.deactivate(child.ID, cause)
		}
	}
	return err
}

// QuarantinedError is the error of what a quarantined worker requests.
func QuarantinedError(worker muster.WorkerID, why string) error {
	return muster.Errorf(muster.Forbidden, "worker %s is quarantined: %s; muster workers reset %s makes it a new identity", worker, why, worker)
}

// Quarantine refuses the keys of a worker, also after a restart, and ends what they opened. After an error it refuses those in use until the
// process ends.
func (r *Ring) Quarantine(ctx context.Context, worker muster.WorkerID, why string) error {
	r.mu.Lock()
	var used []string
	for id, active := range r.active {
		if active.key.Worker == worker {
			used = append(used, id)
			r.quarantined[id] = why
		}
	}
	r.mu.Unlock()
	err := r.keys.QuarantineKeys(ctx, worker, why)
	r.mu.Lock()
	r.epoch++
	clear(r.cache)
	if err == nil {
		for _, id := range used {
			delete(r.quarantined, id)
		}
	}
	r.mu.Unlock()
	for _, id := range used {
		r.deactivate(id, QuarantinedError(worker, why))
	}
	return err
}

// children lists the keys in use that a key created, and its old secrets.
func (r *Ring) children(id string) (keys []store.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, active := range r.active {
		if active.key.Parent == id {
			keys = append(keys, active.key)
		}
	}
	return keys
}

// usesInterval is how often uses are stored: a server that crashes forgets those of this time.
const usesInterval = time.Minute

// Run stores from time to time which keys were used, and at the end of ctx, too.
func (r *Ring) Run(ctx context.Context) error {
	ticker := time.NewTicker(usesInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			r.storeUses(ctx, false)
		case <-ctx.Done():
			r.storeUses(context.WithoutCancel(ctx), true)
			return nil
		}
	}
}

// usesPerWrite is how many uses one transaction stores, so that it does not hold up others.
const usesPerWrite = 500

// storeUses stores the uses that are not stored yet, and now for keys with running requests if the server ends.
func (r *Ring) storeUses(ctx context.Context, end bool) {
	var changed []*ActiveKey
	var uses []store.KeyUse
	r.mu.Lock()
	for _, active := range r.active {
		if end && active.requests.Load() > 0 {
			active.usedAt.Store(int64(muster.NewTime(time.Now())))
		}
		if at := active.usedAt.Load(); at > active.storedAt {
			changed = append(changed, active)
			uses = append(uses, store.KeyUse{Hash: active.key.Hash, At: muster.Time(at), From: addressText(*active.usedFrom.Load())})
		}
	}
	r.mu.Unlock()
	for i := 0; i < len(uses); i += usesPerWrite {
		part := uses[i:min(i+usesPerWrite, len(uses))]
		if err := r.keys.TouchKeys(ctx, part); err != nil {
			r.log.WarnContext(ctx, "cannot store when API keys were used", slog.Any("error", err))
			return
		}
		r.mu.Lock()
		for j := range part {
			changed[i+j].storedAt = int64(part[j].At)
		}
		r.mu.Unlock()
	}
}

// LastUse returns when a key was last used, which is now while it has running requests, and from which address.
func (r *Ring) LastUse(key *store.Key) (at muster.Time, from string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	active := r.active[key.ID]
	if active == nil {
		return key.LastUsedAt, key.LastUsedFrom
	}
	at = muster.Time(active.usedAt.Load())
	if active.requests.Load() > 0 {
		at = muster.NewTime(time.Now())
	}
	return at, addressText(*active.usedFrom.Load())
}

// addressText returns an address, "" if it is not known.
func addressText(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}
