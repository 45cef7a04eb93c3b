package keyring

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/store"
)

// ActiveKey is a key in use, from its first request until it is revoked or expires. Every
// request and worker session of the key is bound to it.
type ActiveKey struct {
	ctx    context.Context //nolint:containedctx // it ends with the key
	cancel context.CancelCauseFunc

	// The Ring's mutex guards these.
	key         store.Key
	expiryTimer *time.Timer // nil for a key that does not expire
	storedAt    int64       // the usedAt that is in the store

	usedAt   atomic.Int64 // a muster.Time
	usedFrom atomic.Pointer[string]

	requests, streams, searches, charts, explanations atomic.Int64 // currently running; see Limits
}

func newActiveKey() *ActiveKey {
	k := &ActiveKey{}
	k.ctx, k.cancel = context.WithCancelCause(context.Background())
	k.usedFrom.Store(new(string))
	return k
}

// use records a use from an address.
func (k *ActiveKey) use(from string) {
	k.usedAt.Store(int64(muster.NewTime(time.Now())))
	if *k.usedFrom.Load() != from {
		changed := from // so that only a change allocates
		k.usedFrom.Store(&changed)
	}
}

func (k *ActiveKey) stopTimer() {
	if k.expiryTimer != nil {
		k.expiryTimer.Stop()
		k.expiryTimer = nil
	}
}

// Bind returns a context that also ends with the key, with the reason as its cause. The
// caller must call release.
func (k *ActiveKey) Bind(ctx context.Context) (bound context.Context, release func()) {
	bound, cancel := context.WithCancelCause(ctx)
	unbind := context.AfterFunc(k.ctx, func() { cancel(context.Cause(k.ctx)) })
	return bound, func() {
		k.usedAt.Store(int64(muster.NewTime(time.Now())))
		unbind()
		cancel(nil)
	}
}

// Interrupt makes a request's blocked reads and writes fail when the key ends. release
// disables this and waits for an interruption in progress.
func (k *ActiveKey) Interrupt(w http.ResponseWriter) (release func()) {
	rc := http.NewResponseController(w)
	interrupted := make(chan struct{})
	stop := context.AfterFunc(k.ctx, func() {
		defer close(interrupted)
		now := time.Now()
		_ = rc.SetReadDeadline(now) // otherwise the request ends by its own limits
		_ = rc.SetWriteDeadline(now)
	})
	return func() {
		if !stop() {
			<-interrupted
		}
	}
}

// revokedError returns the error after a revocation. For a worker it is the same as the store's later one: a worker with an unknown key would join again.
func revokedError(key store.Key) error {
	if key.Worker != "" {
		return muster.Errorf(muster.Forbidden, "the key of worker %s was revoked by an administrator", key.Worker)
	}
	return muster.Errorf(muster.Unauthenticated, "the API key %q was revoked", key.Name)
}

var errParentRevoked = muster.Errorf(muster.Unauthenticated, "this link has expired: the API key that created it was revoked")

func expiredError(key store.Key) error {
	if key.Rotated {
		return muster.Errorf(muster.Unauthenticated, "the API key %q has a new secret, and its old one ended at %s", key.Name, key.ExpiresAt)
	}
	return muster.Errorf(muster.Unauthenticated, "the API key %q expired at %s: get a new one", key.Name, key.ExpiresAt)
}
