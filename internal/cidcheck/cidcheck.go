// Package contents holds what workers tell of content identifiers to the bytes themselves. A file is read for that when somebody first wants it by its identifier, and
// what was found is kept with it.
package cidcheck

import (
	"context"
	"log/slog"
	"sync"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/blob"
	"github.com/muster-dev/muster/internal/cid"
	"github.com/muster-dev/muster/internal/store"
)

// maxConcurrent is how many files are read at the same time.
const maxConcurrent = 2

// Store is where it is kept what was found.
type Store interface {
	SetVerification(ctx context.Context, c store.Content, v store.Verification) error
}

// Verifier tells whether files have the identifiers that they are said to have. Its methods may be called at the same time.
type Verifier struct {
	store Store
	blobs blob.Store
	log   *slog.Logger

	ctx    context.Context //nolint:containedctx // of the readings, which go on when who asked has left
	cancel context.CancelFunc
	slots  chan struct{}
	wg     sync.WaitGroup

	mu     sync.Mutex
	closed bool
	checks map[claim]*check
}

// claim is what is said of a file.
type claim struct{ cid, sha256 string }

// check is a reading of a file.
type check struct {
	done  chan struct{} // closed when what follows is set
	proof store.Verification
	err   error
}

// New returns a Prover that works until Close.
func New(s Store, blobs blob.Store, log *slog.Logger) *Verifier {
	v := &Verifier{store: s, blobs: blobs, log: log, slots: make(chan struct{}, maxConcurrent), checks: map[claim]*check{}}
	v.ctx, v.cancel = context.WithCancel(context.Background())
	return v
}

// Close ends what goes on.
func (v *Verifier) Close() {
	v.cancel()
	v.mu.Lock()
	v.closed = true
	v.mu.Unlock()
	v.wg.Wait()
}

// Verify reports whether a file has its identifier. It reads each file once, at the speed of one core (0.8 GB/s), also if several ask at once or who asks does not
// wait for the end. It returns NotFound if the file is not there.
func (v *Verifier) Verify(ctx context.Context, c store.Content) (bool, error) {
	if c.Verification != store.Unverified {
		return c.Verification == store.Verified, nil
	}
	l := v.check(c)
	select {
	case <-l.done:
		return l.proof == store.Verified, l.err
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}

// check returns the reading of a file that goes on, or begins one.
func (v *Verifier) check(c store.Content) *check {
	v.mu.Lock()
	defer v.mu.Unlock()
	key := claim{c.CID, c.SHA256}
	l := v.checks[key]
	if l != nil {
		return l
	}
	l = &check{done: make(chan struct{})}
	if v.closed {
		l.err = muster.Errorf(muster.Unavailable, "the server shuts down")
		close(l.done)
		return l
	}
	v.checks[key] = l
	v.wg.Go(func() {
		l.proof, l.err = v.read(c)
		close(l.done)
		v.mu.Lock()
		defer v.mu.Unlock()
		delete(v.checks, key)
	})
	return l
}

func (v *Verifier) read(c store.Content) (store.Verification, error) {
	select {
	case v.slots <- struct{}{}:
		defer func() { <-v.slots }()
	case <-v.ctx.Done():
		return store.Unverified, muster.Errorf(muster.Unavailable, "the server shuts down")
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
		v.log.Error("a worker told a wrong content identifier: the file is not served by it", slog.String("job", c.Job.String()), slog.String("artifact", c.Name),
			slog.String("cid", c.CID), slog.String("real", got), slog.String("sha256", c.SHA256))
	}
	return proof, v.store.SetVerification(v.ctx, c, proof)
}
