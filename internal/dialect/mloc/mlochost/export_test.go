package mlochost

import (
	"context"
	"time"

	"github.com/muster-dev/muster/internal/dialect"
)

// For tests, which cannot be in this package: they need a server, which imports it.
const (
	TagMerges = tagMerges
	MaxGPUs   = maxGPUs
)

// NewQuick is System().New with the pace of tests.
func NewQuick(ctx context.Context, env dialect.Env) (*Gateway, error) {
	return newGateway(ctx, env, pace{sweep: 50 * time.Millisecond, redeliver: 300 * time.Millisecond, settle: 500 * time.Millisecond, retry: 20 * time.Millisecond, hold: 2 * time.Second, merge: 10 * time.Second})
}

// Submitted reports whether there is a job for a client's task.
func (g *Gateway) Submitted(id string) bool {
	t, _ := g.ledger.get(id)
	return t.Job != 0
}

// Grant allows to read the results of a task.
func (g *Gateway) Grant(id string) string { return g.grant(id) }

// Port is the listener's address.
func (g *Gateway) Port() string { return g.listener.URL() }
