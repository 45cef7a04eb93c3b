package mlochost

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/muster-dev/muster/internal/dialect"
)

// For tests, which cannot be in this package: they need a server, which imports it.
const (
	TagMerges = tagMerges
	MaxGPUs   = maxGPUs
)

// NewFast is System().New with the pace of tests.
func NewFast(ctx context.Context, deps dialect.Deps) (*Gateway, error) {
	return newGateway(ctx, deps, intervals{sweep: 50 * time.Millisecond, redeliver: 300 * time.Millisecond, mismatchGrace: 500 * time.Millisecond, retry: 20 * time.Millisecond, hostTTL: 2 * time.Second, mergeWait: 10 * time.Second})
}

// Submitted reports whether there is a job for a client's task.
func (g *Gateway) Submitted(id string) bool {
	t, _ := g.tasks.get(id)
	return t.Job != 0
}

// Grant allows to read the results of a task.
func (g *Gateway) Grant(id string) string { return g.grantToken(id) }

// Port is the listener's address.
func (g *Gateway) Port() string { return g.Listener.URL() }

// Patterns returns the patterns of all routes.
func Patterns() []string { return slices.Collect(maps.Keys((&Gateway{}).handlers())) }
