// Package caller keeps in a request's context who asks, for those who show less to some than to others.
package caller

import (
	"context"

	"github.com/muster-dev/muster/internal/auth"
)

type contextKey struct{}

// NewContext returns a context in which p asks.
func NewContext(ctx context.Context, p auth.Principal) context.Context {
	return context.WithValue(ctx, contextKey{}, p)
}

// FromContext returns who asks. In a request that needs no key it is the zero Principal.
func FromContext(ctx context.Context) auth.Principal {
	p, _ := ctx.Value(contextKey{}).(auth.Principal)
	return p
}
