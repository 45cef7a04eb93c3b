package engine

import (
	"context"
	"sync"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sched"
)

// letter is one thing to decide. Its functions run on the engine's goroutine and
// do not block.
type letter struct {
	// decide applies it to the state. An error means that it was refused and changed
	// nothing; it becomes the answer.
	decide func(st *sched.State, now muster.Time, b *batch) error
	// done gets the answer: nil after the commit, or why it was not done.
	done func(error)
	// fresh asks that everything before it is committed first, because decide reads
	// the store.
	fresh bool
}

// inboxLimit is how many letters wait before senders are held up.
const inboxLimit = 50_000

// inbox is the engine's mailbox. Many send, one takes.
type inbox struct {
	mu     sync.Mutex
	queue  []letter
	closed error         // set once the engine takes no more
	wake   chan struct{} // holds a token while there are letters
	room   chan struct{} // closed when a full queue was emptied; nil while it is not full
}

func newInbox() *inbox { return &inbox{wake: make(chan struct{}, 1)} }

// post adds a letter. It waits only while the inbox is full.
func (in *inbox) post(ctx context.Context, l letter) error {
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
		if in.room == nil {
			in.room = make(chan struct{})
		}
		room := in.room
		in.mu.Unlock()
		select {
		case <-room:
		case <-ctx.Done():
			return muster.Errorf(muster.Unavailable, "the server is busy and has not done this; try again: %w", ctx.Err())
		}
	}
}

// take returns all letters that wait, putting them in buf's place.
func (in *inbox) take(buf []letter) []letter {
	in.mu.Lock()
	defer in.mu.Unlock()
	taken := in.queue
	in.queue = buf[:0]
	if in.room != nil {
		close(in.room)
		in.room = nil
	}
	return taken
}

// close refuses all letters, those that wait too, with err.
func (in *inbox) close(err error) {
	in.mu.Lock()
	in.closed = err
	in.mu.Unlock()
	for _, l := range in.take(nil) {
		l.done(err)
	}
}
