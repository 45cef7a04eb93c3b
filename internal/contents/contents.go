// Package contents holds what workers tell of content identifiers to the bytes themselves. A file is read for that when somebody first wants it by its identifier, and
// what was found is kept with it.
package contents

import (
	"context"
	"log/slog"
	"sync"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/blob"
	"github.com/muster-dev/muster/internal/cid"
	"github.com/muster-dev/muster/internal/store"
)

// atOnce is how many files are read at the same time.
const atOnce = 2

// Store is where it is kept what was found.
type Store interface {
	SetVerification(ctx context.Context, c store.Content, p store.Verification) error
}

// Prover tells whether files have the identifiers that they are said to have. Its methods may be called at the same time.
type Prover struct {
	store Store
	blobs blob.Store
	log   *slog.Logger

	ctx   context.Context //nolint:containedctx // of the readings, which go on when who asked has left
	end   context.CancelFunc
	room  chan struct{}
	going sync.WaitGroup

	mu     sync.Mutex
	closed bool
	looks  map[claim]*look
}

// claim is what is said of a file.
type claim struct{ cid, sha256 string }

// look is a reading of a file.
type look struct {
	done  chan struct{} // closed when what follows is set
	proof store.Verification
	err   error
}

// New returns a Prover that works until Close.
func New(s Store, blobs blob.Store, log *slog.Logger) *Prover {
	p := &Prover{store: s, blobs: blobs, log: log, room: make(chan struct{}, atOnce), looks: map[claim]*look{}}
	p.ctx, p.end = context.WithCancel(context.Background())
	return p
}

// Close ends what goes on.
func (p *Prover) Close() {
	p.end()
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.going.Wait()
}

// Prove reports whether a file has its identifier. It reads each file once, at the speed of one core (0.8 GB/s), also if several ask at once or who asks does not
// wait for the end. It returns NotFound if the file is not there.
func (p *Prover) Prove(ctx context.Context, c store.Content) (bool, error) {
	if c.Verification != store.Unverified {
		return c.Verification == store.Verified, nil
	}
	l := p.look(c)
	select {
	case <-l.done:
		return l.proof == store.Verified, l.err
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}

// look returns the reading of a file that goes on, or begins one.
func (p *Prover) look(c store.Content) *look {
	p.mu.Lock()
	defer p.mu.Unlock()
	of := claim{c.CID, c.SHA256}
	l := p.looks[of]
	if l != nil {
		return l
	}
	l = &look{done: make(chan struct{})}
	if p.closed {
		l.err = muster.Errorf(muster.Unavailable, "the server shuts down")
		close(l.done)
		return l
	}
	p.looks[of] = l
	p.going.Go(func() {
		l.proof, l.err = p.read(c)
		close(l.done)
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.looks, of)
	})
	return l
}

func (p *Prover) read(c store.Content) (store.Verification, error) {
	select {
	case p.room <- struct{}{}:
		defer func() { <-p.room }()
	case <-p.ctx.Done():
		return store.Unverified, muster.Errorf(muster.Unavailable, "the server shuts down")
	}
	content, err := p.blobs.Open(p.ctx, c.SHA256)
	if err != nil {
		return store.Unverified, err
	}
	defer func() { _ = content.Close() }() // it was only read
	got, err := cid.Of(until{p.ctx, content})
	if err != nil {
		return store.Unverified, err
	}
	proof := store.Verified
	if got != c.CID {
		proof = store.Mismatch
		p.log.Error("a worker told a wrong content identifier: the file is not served by it", slog.String("job", c.Job.String()), slog.String("artifact", c.Name),
			slog.String("cid", c.CID), slog.String("real", got), slog.String("sha256", c.SHA256))
	}
	return proof, p.store.SetVerification(p.ctx, c, proof)
}
