// Package cidcheck verifies the content identifiers that workers report. It reads a file when a client first requests it by its identifier, and
// stores the result.
package cidcheck

import (
	"context"
	"io"
	"log/slog"
	"sync"

	"golang.org/x/sync/singleflight"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/blob"
	"github.com/muster-dev/muster/internal/cid"
	"github.com/muster-dev/muster/internal/store"
)

// maxConcurrent is how many files are read at the same time.
const maxConcurrent = 2

// Store stores results.
type Store interface {
	SetVerification(ctx context.Context, c store.Content, v store.Verification) error
}

// Verifier verifies content identifiers. Its methods may be called at the same time.
type Verifier struct {
	store Store
	blobs blob.Store
	log   *slog.Logger

	ctx    context.Context //nolint:containedctx // of checks, which continue when the caller has left
	cancel context.CancelFunc
	slots  chan struct{}
	checks singleflight.Group

	mu      sync.Mutex
	closed  bool
	running sync.WaitGroup
}

// New returns a Verifier that works until Close.
func New(s Store, blobs blob.Store, log *slog.Logger) *Verifier {
	v := &Verifier{store: s, blobs: blobs, log: log, slots: make(chan struct{}, maxConcurrent)}
	v.ctx, v.cancel = context.WithCancel(context.Background())
	return v
}

// Close cancels running checks and waits for their end.
func (v *Verifier) Close() {
	v.cancel()
	v.mu.Lock()
	v.closed = true
	v.mu.Unlock()
	v.running.Wait()
}

// Verify reports whether a file has its identifier. It reads each file once, at the speed of one core (0.8 GB/s), also for several callers at once, and
// continues if a caller does not wait for the end. It returns NotFound if the file is missing.
func (v *Verifier) Verify(ctx context.Context, c store.Content) (bool, error) {
	if c.Verification != store.Unverified {
		return c.Verification == store.Verified, nil
	}
	select {
	case r := <-v.checks.DoChan(c.CID+" "+c.SHA256, func() (any, error) { return v.check(c) }):
		return r.Val == store.Verified, r.Err
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}

func errShutdown() error { return muster.Errorf(muster.Unavailable, "the server shuts down") }

func (v *Verifier) check(c store.Content) (store.Verification, error) {
	v.mu.Lock()
	if v.closed {
		v.mu.Unlock()
		return store.Unverified, errShutdown()
	}
	v.running.Add(1)
	v.mu.Unlock()
	defer v.running.Done()
	select {
	case v.slots <- struct{}{}:
		defer func() { <-v.slots }()
	case <-v.ctx.Done():
		return store.Unverified, errShutdown()
	}
	content, err := v.blobs.Open(v.ctx, c.SHA256)
	if err != nil {
		return store.Unverified, err
	}
	defer func() { _ = content.Close() }() // it was only read
	got, err := cid.Sum(ctxReader{v.ctx, content})
	if err != nil {
		return store.Unverified, err
	}
	proof := store.Verified
	if got != c.CID {
		proof = store.Mismatch
		v.log.Error("CID reported by the worker does not match the file, not serving it", slog.String("job", c.Job.String()), slog.String("artifact", c.Name),
			slog.String("cid", c.CID), slog.String("real", got), slog.String("sha256", c.SHA256))
	}
	return proof, v.store.SetVerification(v.ctx, c, proof)
}

// ctxReader fails when its context ends.
type ctxReader struct {
	ctx context.Context //nolint:containedctx // of one check
	r   io.Reader
}

func (u ctxReader) Read(b []byte) (int, error) {
	if u.ctx.Err() != nil {
		return 0, errShutdown()
	}
	return u.r.Read(b)
}
