// Package caller stores the caller of a request in its context.
package caller

import (
	"context"

	"github.com/muster-dev/muster/internal/auth"
)

type contextKey struct{}

// NewContext returns a context with the caller p.
func NewContext(ctx context.Context, p auth.Principal) context.Context {
	return context.WithValue(ctx, contextKey{}, p)
}

// FromContext returns the caller; the zero Principal in a request that needs no key.
func FromContext(ctx context.Context) auth.Principal {
	p, _ := ctx.Value(contextKey{}).(auth.Principal)
	return p
}
