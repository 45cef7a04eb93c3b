// Package granting records grants of blobs. It combines those of many concurrent uploads into one transaction of the store.
package granting

import (
	"context"
	"slices"
	"sync"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/store"
)

// maxBatch is the maximum number of grants of one transaction, unless a single call has more.
const maxBatch = 1_000

// Granter commits grants in batches: those that arrive during a commit form the next batch. One of the calls that
// wait for a batch commits it, so that each call returns after the commit of its own batch. It is safe for concurrent use.
type Granter struct {
	store store.GrantStore

	mu         sync.Mutex
	committing bool     // a call commits, or was elected to
	queue      []*batch // not started, oldest first
}

// New returns a Granter that commits to a store.
func New(s store.GrantStore) *Granter { return &Granter{store: s} }

var errNotCommitted = muster.Errorf(muster.Internal, "the server failed to record access to the blobs: upload them again")

type batch struct {
	holders []store.Grantee
	blobs   []store.Blob
	waiters int           // calls that wait for it; guarded by Granter.mu
	leader  chan struct{} // has a token for the call that must commit it
	done    chan struct{} // closed when err is set
	err     error
}

// Grant returns after the grants are on disk. If ctx ends before, they may or may not be committed; the grants of other calls are.
func (g *Granter) Grant(ctx context.Context, h store.Grantee, blobs ...store.Blob) error {
	if len(blobs) == 0 {
		return nil
	}
	b := g.enqueue(h, blobs)
	select {
	case <-b.leader:
		g.commit(context.WithoutCancel(ctx), b) // other calls wait for it, too
		return b.err
	case <-b.done:
		return b.err
	case <-ctx.Done():
		g.abandon(b)
		return context.Cause(ctx)
	}
}

// enqueue adds grants to the newest batch if it has space, else to a new one.
func (g *Granter) enqueue(h store.Grantee, blobs []store.Blob) *batch {
	g.mu.Lock()
	defer g.mu.Unlock()
	var b *batch
	if n := len(g.queue); n > 0 && len(g.queue[n-1].blobs)+len(blobs) <= maxBatch {
		b = g.queue[n-1]
	} else {
		b = &batch{leader: make(chan struct{}, 1), done: make(chan struct{})}
		g.queue = append(g.queue, b)
	}
	b.waiters++
	b.holders = append(b.holders, slices.Repeat([]store.Grantee{h}, len(blobs))...)
	b.blobs = append(b.blobs, blobs...)
	if !g.committing {
		g.electLeader()
	}
	return b
}

// electLeader elects a call to commit the oldest batch. The caller holds mu.
func (g *Granter) electLeader() {
	g.committing = len(g.queue) > 0
	if g.committing {
		g.queue[0].leader <- struct{}{}
	}
}

// commit commits the oldest batch, whose token the caller has, and then elects the leader of the next one.
func (g *Granter) commit(ctx context.Context, b *batch) {
	g.mu.Lock()
	g.queue = slices.Delete(g.queue, 0, 1)
	g.mu.Unlock()
	defer func() { // also if the store panics
		close(b.done)
		g.mu.Lock()
		defer g.mu.Unlock()
		g.electLeader()
	}()
	b.err = errNotCommitted
	b.err = g.store.GrantBlobs(ctx, b.holders, b.blobs)
}

// abandon ends a call's wait. It drops a batch that no call waits for.
func (g *Granter) abandon(b *batch) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if b.waiters--; b.waiters > 0 {
		return
	}
	i := slices.Index(g.queue, b)
	if i < 0 {
		return // it is being committed
	}
	g.queue = slices.Delete(g.queue, i, i+1)
	select {
	case <-b.leader:
		g.electLeader()
	default:
	}
}
