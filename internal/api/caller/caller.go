// Package caller keeps in a request's context who asks, for those who show less to some than to others.
package caller

import (
	"context"

	"github.com/muster-dev/muster/internal/auth"
)

type key struct{}

// With returns a context in which p asks.
func With(ctx context.Context, p auth.Principal) context.Context {
	return context.WithValue(ctx, key{}, p)
}

// Of returns who asks. In a request that needs no key it is the zero Principal.
func Of(ctx context.Context) auth.Principal {
	p, _ := ctx.Value(key{}).(auth.Principal)
	return p
}
