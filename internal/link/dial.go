package link

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/muster-dev/muster"
)

// Dialer opens sessions to one server. An Unauthenticated or Forbidden error
// says that the server refuses this worker's key, which trying again does not change; others are worth
// another try after a Backoff.
type Dialer interface {
	Dial(ctx context.Context) (WorkerConn, error)
}

// Backoff spaces out the tries to reach a server: full jitter under a bound
// that doubles from 100 ms to 15 s. The zero value is ready. One goroutine uses it.
type Backoff struct{ tries int }

const (
	minBackoff = 100 * time.Millisecond
	maxBackoff = 15 * time.Second
)

// Next returns how long to wait before the next try.
func (b *Backoff) Next() time.Duration {
	limit := maxBackoff
	if b.tries < 8 {
		limit = min(minBackoff<<b.tries, maxBackoff)
		b.tries++
	}
	return rand.N(limit) + 1 //nolint:gosec // jitter is no secret
}

// Wait waits for the time of Next, or until ctx ends.
func (b *Backoff) Wait(ctx context.Context) error {
	t := time.NewTimer(b.Next())
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Reset starts over, after a session that lasted.
func (b *Backoff) Reset() { b.tries = 0 }

// fallbackFor is how long a Fallback keeps to its second dialer.
const fallbackFor = 10 * time.Minute

// Fallback dials by First, and by Second where First does not get through
// although the server's machine answers: a proxy in between may know no WebSocket. What worked is tried first
// for the next ten minutes. Refusals by the server itself are final for both.
type Fallback struct {
	First, Second Dialer

	mu                sync.Mutex
	preferSecondUntil time.Time // preferSecondUntil when Second goes first
}

// Dial implements Dialer. If both dialers fail the error tells of both.
func (f *Fallback) Dial(ctx context.Context) (WorkerConn, error) {
	f.mu.Lock()
	swapped := time.Now().Before(f.preferSecondUntil)
	f.mu.Unlock()
	primary, secondary := f.First, f.Second
	if swapped {
		primary, secondary = secondary, primary
	}
	conn, err := primary.Dial(ctx)
	if err == nil || !transportBlocked(ctx, err) {
		return conn, err
	}
	conn, err2 := secondary.Dial(ctx)
	if err2 != nil {
		if !transportBlocked(ctx, err2) {
			return nil, err2
		}
		return nil, muster.Errorf(muster.Unavailable, "%w; then: %w", err, err2)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.preferSecondUntil = (time.Time{}); !swapped {
		f.preferSecondUntil = time.Now().Add(fallbackFor)
	}
	return conn, nil
}

// transportBlocked reports whether err may come from the way to the server, and only for this
// transport: not if nobody answered at all, nor if the server refused.
func transportBlocked(ctx context.Context, err error) bool {
	if code := muster.CodeOf(err); code == muster.Unauthenticated || code == muster.Forbidden || ctx.Err() != nil {
		return false
	}
	op, ok := errors.AsType[*net.OpError](err)
	return !errors.Is(err, errBusy) && (!ok || op.Op != "dial")
}

// DialError makes a transport's error of a Dial to server: a refusal of the key as it is, and
// anything else as Unavailable.
func DialError(server string, err error) error {
	if code := muster.CodeOf(err); code == muster.Unauthenticated || code == muster.Forbidden {
		return err
	}
	return muster.Errorf(muster.Unavailable, "no link to %s: %w", server, err)
}
