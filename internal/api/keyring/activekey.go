package keyring

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/ratelimit"
	"github.com/muster-dev/muster/internal/store"
)

// ActiveKey is a key in use, from its first request until it is revoked or expires. Every
// request and worker session of the key is bound to it.
type ActiveKey struct {
	ctx         context.Context //nolint:containedctx // it ends with the key
	cancel      context.CancelCauseFunc
	expiryTimer *time.Timer // nil for a key that does not expire
	parent      string      // id of the key that created it, or ""
	limits      *ratelimit.Limiter
	bucket      *rate.Limiter // of limits

	requests, streams, searches, charts, explanations atomic.Int64 // currently running; see Limits
}

// newActiveKey returns the ActiveKey of a key that has not expired.
func newActiveKey(key store.Key, limits *ratelimit.Limiter, onExpiry func()) *ActiveKey {
	k := &ActiveKey{parent: key.Parent, limits: limits, bucket: limits.NewKeyBucket()}
	k.ctx, k.cancel = context.WithCancelCause(context.Background())
	if key.ExpiresAt != 0 {
		k.expiryTimer = time.AfterFunc(time.Until(key.ExpiresAt.Std()), onExpiry)
	}
	return k
}

// Allow counts a request of the key, see ratelimit.Limiter.AllowKey.
func (k *ActiveKey) Allow(ctx context.Context) error { return k.limits.AllowKey(ctx, k.bucket) }

// end ends all requests and sessions of the key.
func (k *ActiveKey) end(cause error) {
	if k.expiryTimer != nil {
		k.expiryTimer.Stop()
	}
	k.cancel(cause)
}

// Bind returns a context that also ends with the key, with the reason as its cause. The
// caller must call release.
func (k *ActiveKey) Bind(ctx context.Context) (bound context.Context, release func()) {
	bound, cancel := context.WithCancelCause(ctx)
	unbind := context.AfterFunc(k.ctx, func() { cancel(context.Cause(k.ctx)) })
	return bound, func() {
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
	return muster.Errorf(muster.Unauthenticated, "the API key %q expired at %s: get a new one", key.Name, key.ExpiresAt)
}
