package engine

import (
	"context"
	"sync"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sched"
)

// request is a request to the engine. Its functions run on the engine's goroutine and must
// not block.
type request struct {
	// decide applies it to the state. An error means that it changed nothing; it is the reply.
	decide func(st *sched.State, now muster.Time, b *batch) error
	// done receives the reply: nil after the commit, or an error.
	done func(error)
	// barrier requires a commit of everything before it, because decide reads the store.
	barrier bool
}

// inboxLimit is how many requests wait before post blocks.
const inboxLimit = 50_000

// inbox is the engine's queue of requests, with many senders and one receiver.
type inbox struct {
	mu      sync.Mutex
	queue   []request
	closed  error         // the reply to all requests once it is closed
	wake    chan struct{} // has a token while there are requests
	notFull chan struct{} // closed when a full queue was drained; nil while it is not full
}

func newInbox() *inbox { return &inbox{wake: make(chan struct{}, 1)} }

// post adds a request. It waits only while the inbox is full.
func (in *inbox) post(ctx context.Context, l request) error {
	for {
		in.mu.Lock()
		if in.closed != nil {
			defer in.mu.Unlock()
			return in.closed
		}
		if len(in.queue) < inboxLimit {
			in.queue = append(in.queue, l)
			in.mu.Unlock()
			in.notify()
			return nil
		}
		if in.notFull == nil {
			in.notFull = make(chan struct{})
		}
		notFull := in.notFull
		in.mu.Unlock()
		select {
		case <-notFull:
		case <-ctx.Done():
			return muster.Errorf(muster.Unavailable, "not done, safe to retry: the server is busy: %w", ctx.Err())
		}
	}
}

// add adds a request of the engine's own goroutine, which must not wait, also if the inbox is full. A closed inbox drops it.
func (in *inbox) add(l request) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.closed == nil {
		in.queue = append(in.queue, l)
		in.notify()
	}
}

// notify wakes the engine.
func (in *inbox) notify() {
	select {
	case in.wake <- struct{}{}:
	default:
	}
}

// drain returns all waiting requests. The inbox reuses buf.
func (in *inbox) drain(buf []request) []request {
	in.mu.Lock()
	defer in.mu.Unlock()
	requests := in.queue
	in.queue = buf[:0]
	if in.notFull != nil {
		close(in.notFull)
		in.notFull = nil
	}
	return requests
}

// close fails all waiting and future requests with err.
func (in *inbox) close(err error) {
	in.mu.Lock()
	in.closed = err
	in.mu.Unlock()
	for _, l := range in.drain(nil) {
		l.done(err)
	}
}
