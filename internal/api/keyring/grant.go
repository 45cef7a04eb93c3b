package keyring

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/store"
)

// Grant is the validity of one key, from its first use until it is revoked or expires. Every
// request and every worker session that the key opened is bound to it.
type Grant struct {
	ctx    context.Context //nolint:containedctx // it is what ends with the key
	end    context.CancelCauseFunc
	expiry *time.Timer // nil for a key that does not expire
	parent string      // the key that made it, if any

	requests, streams, searches, charts, explanations atomic.Int64 // under way; see Bounds
}

// newGrant starts the validity of a key, which must not have expired.
func newGrant(key store.Key, expire func()) *Grant {
	g := &Grant{parent: key.Parent}
	g.ctx, g.end = context.WithCancelCause(context.Background())
	if key.ExpiresAt != 0 {
		g.expiry = time.AfterFunc(time.Until(key.ExpiresAt.Std()), expire)
	}
	return g
}

// stop ends the validity.
func (g *Grant) stop(why error) {
	if g.expiry != nil {
		g.expiry.Stop()
	}
	g.end(why)
}

// Bind returns a context that also ends with the key, with the reason as its cause. release
// must be called.
func (g *Grant) Bind(ctx context.Context) (bound context.Context, release func()) {
	bound, cancel := context.WithCancelCause(ctx)
	unbind := context.AfterFunc(g.ctx, func() { cancel(context.Cause(g.ctx)) })
	return bound, func() {
		unbind()
		cancel(nil)
	}
}

// Interrupt makes reads and writes that a request is blocked in fail once the key ends. It
// returns what waits until that does not happen any more.
func (g *Grant) Interrupt(w http.ResponseWriter) (release func()) {
	rc := http.NewResponseController(w)
	interrupted := make(chan struct{})
	stop := context.AfterFunc(g.ctx, func() {
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

// errRevoked says it to a worker as the store says it later: a worker whose key is merely unknown joins again.
func errRevoked(key store.Key) error {
	if key.Worker != "" {
		return muster.Errorf(muster.Forbidden, "the key of worker %s was revoked by an administrator", key.Worker)
	}
	return muster.Errorf(muster.Unauthenticated, "the API key %q was revoked", key.Name)
}

var errParentRevoked = muster.Errorf(muster.Unauthenticated, "this link has ended: the API key that made it was revoked")

func errExpired(key store.Key) error {
	return muster.Errorf(muster.Unauthenticated, "the API key %q ended at %s: ask for a new one", key.Name, key.ExpiresAt)
}
