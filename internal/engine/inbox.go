package engine

import (
	"context"
	"sync"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sched"
)

// request is one thing to decide. Its functions run on the engine's goroutine and
// do not block.
type request struct {
	// decide applies it to the state. An error means that it was refused and changed
	// nothing; it becomes the answer.
	decide func(st *sched.State, now muster.Time, b *batch) error
	// done gets the answer: nil after the commit, or why it was not done.
	done func(error)
	// barrier asks that everything before it is committed first, because decide reads
	// the store.
	barrier bool
}

// inboxLimit is how many letters wait before senders are held up.
const inboxLimit = 50_000

// inbox is the engine's mailbox. Many send, one takes.
type inbox struct {
	mu      sync.Mutex
	queue   []request
	closed  error         // set once the engine takes no more
	wake    chan struct{} // holds a token while there are letters
	notFull chan struct{} // closed when a full queue was emptied; nil while it is not full
}

func newInbox() *inbox { return &inbox{wake: make(chan struct{}, 1)} }

// post adds a letter. It waits only while the inbox is full.
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
			select {
			case in.wake <- struct{}{}:
			default:
			}
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
			return muster.Errorf(muster.Unavailable, "the server is busy and has not done this; try again: %w", ctx.Err())
		}
	}
}

// drain returns all letters that wait, putting them in buf's place.
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

// close refuses all letters, those that wait too, with err.
func (in *inbox) close(err error) {
	in.mu.Lock()
	in.closed = err
	in.mu.Unlock()
	for _, l := range in.drain(nil) {
		l.done(err)
	}
}
