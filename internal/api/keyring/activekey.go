package keyring

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/store"
)

// ActiveKey is the validity of one key, from its first use until it is revoked or expires. Every
// request and every worker session that the key opened is bound to it.
type ActiveKey struct {
	ctx         context.Context //nolint:containedctx // it is what ends with the key
	cancel      context.CancelCauseFunc
	expiryTimer *time.Timer // nil for a key that does not expire
	parent      string      // the key that made it, if any

	requests, streams, searches, charts, explanations atomic.Int64 // under way; see Bounds
}

// newActiveKey starts the validity of a key, which must not have expired.
func newActiveKey(key store.Key, onExpiry func()) *ActiveKey {
	k := &ActiveKey{parent: key.Parent}
	k.ctx, k.cancel = context.WithCancelCause(context.Background())
	if key.ExpiresAt != 0 {
		k.expiryTimer = time.AfterFunc(time.Until(key.ExpiresAt.Std()), onExpiry)
	}
	return k
}

// end ends the validity.
func (k *ActiveKey) end(cause error) {
	if k.expiryTimer != nil {
		k.expiryTimer.Stop()
	}
	k.cancel(cause)
}

// Bind returns a context that also ends with the key, with the reason as its cause. release
// must be called.
func (k *ActiveKey) Bind(ctx context.Context) (bound context.Context, release func()) {
	bound, cancel := context.WithCancelCause(ctx)
	unbind := context.AfterFunc(k.ctx, func() { cancel(context.Cause(k.ctx)) })
	return bound, func() {
		unbind()
		cancel(nil)
	}
}

// Interrupt makes reads and writes that a request is blocked in fail once the key ends. It
// returns what waits until that does not happen any more.
func (k *ActiveKey) Interrupt(w http.ResponseWriter) (release func()) {
	rc := http.NewResponseController(w)
	interrupted := make(chan struct{})
	stop := context.AfterFunc(k.ctx, func() {
		defer close(interrupted)
		now := time.Now()
		_ = rc.SetReadDeadline(now) // what cannot be interrupted ends by its own limits
		_ = rc.SetWriteDeadline(now)
	})
	return func() {
		if !stop() {
			<-interrupted
		}
	}
}

// revokedError says it to a worker as the store says it later: a worker whose key is merely unknown joins again.
func revokedError(key store.Key) error {
	if key.Worker != "" {
		return muster.Errorf(muster.Forbidden, "the key of worker %s was revoked by an administrator", key.Worker)
	}
	return muster.Errorf(muster.Unauthenticated, "the API key %q was revoked", key.Name)
}

var errParentRevoked = muster.Errorf(muster.Unauthenticated, "this link has ended: the API key that made it was revoked")

func expiredError(key store.Key) error {
	return muster.Errorf(muster.Unauthenticated, "the API key %q ended at %s: ask for a new one", key.Name, key.ExpiresAt)
}
