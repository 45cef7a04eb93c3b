package api

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/link"
	"github.com/muster-dev/muster/internal/store"
)

// grant is the validity of one key, from its first use until it is revoked or expires. Every
// request and every worker session that the key opened is bound to it.
type grant struct {
	ctx    context.Context //nolint:containedctx // it is what ends with the key
	end    context.CancelCauseFunc
	expiry *time.Timer // nil for a key that does not expire

	requests, streams atomic.Int64 // under way; see bounds
}

// newGrant starts the validity of a key, which must not have expired.
func newGrant(key store.Key, expire func()) *grant {
	g := &grant{}
	g.ctx, g.end = context.WithCancelCause(context.Background())
	if key.ExpiresAt != 0 {
		g.expiry = time.AfterFunc(time.Until(key.ExpiresAt.Std()), expire)
	}
	return g
}

// stop ends the validity.
func (g *grant) stop(why error) {
	if g.expiry != nil {
		g.expiry.Stop()
	}
	g.end(why)
}

// bind returns a context that also ends with the key, with the reason as its cause. release
// must be called.
func (g *grant) bind(ctx context.Context) (bound context.Context, release func()) {
	bound, cancel := context.WithCancelCause(ctx)
	unbind := context.AfterFunc(g.ctx, func() { cancel(context.Cause(g.ctx)) })
	return bound, func() {
		unbind()
		cancel(nil)
	}
}

// interrupt makes reads and writes that a request is blocked in fail once the key ends. It
// returns what waits until that does not happen any more.
func (g *grant) interrupt(w http.ResponseWriter) (release func()) {
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

// WhileKeyIsValid binds the context of a worker's session, which has the values of the request
// that opened it, to the key of that request. release must be called.
func WhileKeyIsValid(ctx context.Context) (bound context.Context, release func()) {
	if g := grantOf(ctx); g != nil {
		return g.bind(ctx)
	}
	return context.WithCancel(ctx)
}

// isLink says whether requests to a path belong to sessions of workers, which end by a goodbye.
func isLink(path string) bool {
	return path == link.PathSocket || strings.HasPrefix(path, link.PathSocket+"/")
}

// errRevoked says it to a worker as the store says it later: a worker whose key is merely unknown joins again.
func errRevoked(key store.Key) error {
	if key.Worker != "" {
		return muster.Errorf(muster.Forbidden, "the key of worker %s was revoked by an administrator", key.Worker)
	}
	return muster.Errorf(muster.Unauthenticated, "the API key %q was revoked", key.Name)
}

func errExpired(key store.Key) error {
	return muster.Errorf(muster.Unauthenticated, "the API key %q ended at %s: ask for a new one", key.Name, key.ExpiresAt)
}

// grantOf returns the grant of the key of a request. In a request that needs no key there is none.
func grantOf(ctx context.Context) *grant {
	g, _ := ctx.Value(grantKey).(*grant)
	return g
}
