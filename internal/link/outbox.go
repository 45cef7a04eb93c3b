package link

import (
	"context"
	"io"
	"sync"

	"github.com/muster-dev/muster"
)

// maxBatch is the most messages of one sort that are merged into one frame, so
// that the receiver can begin with the first while later ones still come in.
const maxBatch = 4096

// Outbox gathers the words of a session while its one writer is busy, and hands
// them over merged: batching needs no timer, because whatever came up during a
// write travels in the next one. Its methods may be called from any goroutine.
type Outbox[F any, P frame[F]] struct {
	mu      sync.Mutex
	frames  []P           // waiting, in order; words are added to the last one
	waiting int           // messages in frames
	limit   int           // of waiting
	err     error         // why there is no more: io.EOF after a Goodbye
	ended   bool          // a Goodbye was posted
	wake    chan struct{} // holds one token if frames or err may have changed
}

// ToServerBox gathers what a worker has to say.
type ToServerBox = Outbox[ToServer, *ToServer]

// ToWorkerBox gathers what a server has to say to one worker.
type ToWorkerBox = Outbox[ToWorker, *ToWorker]

// frame is what an Outbox does with frames of either direction.
type frame[F any] interface {
	*F
	merge(w *F) bool // takes w in, unless that would change the order of effect
	cut() *F         // keeps what fits in a frame and returns the rest, or nil
	last() bool      // it has a Goodbye
	messages() int
}

// NewToServerBox returns an empty box that fails when more than limit messages wait.
func NewToServerBox(limit int) *ToServerBox {
	return &ToServerBox{limit: limit, wake: make(chan struct{}, 1)}
}

// NewToWorkerBox returns an empty box that fails when more than limit messages wait.
func NewToWorkerBox(limit int) *ToWorkerBox {
	return &ToWorkerBox{limit: limit, wake: make(chan struct{}, 1)}
}

// Post adds a word and never blocks. The box copies what w lists but may keep what it points to: the
// caller no longer changes it. Words after a Goodbye, or after the box failed, are dropped.
func (o *Outbox[F, P]) Post(w P) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended || o.err != nil {
		return
	}
	if n := len(o.frames); n == 0 || !o.frames[n-1].merge(w) {
		o.frames = append(o.frames, P(new(F)))
		o.frames[len(o.frames)-1].merge(w)
	}
	o.waiting += w.messages()
	o.ended = w.last()
	if max(o.waiting, len(o.frames)) > o.limit {
		o.err = muster.Errorf(muster.Unavailable, "the other side reads too slowly: %d messages wait for it", o.waiting)
		o.frames = nil
	}
	o.signal()
}

// Take waits for words and returns all that fit in one frame. After the frame
// with the Goodbye it returns io.EOF, and after too many words have waited
// Unavailable. One goroutine may call it.
func (o *Outbox[F, P]) Take(ctx context.Context) (P, error) {
	for {
		f, err := o.poll()
		if f != nil || err != nil {
			return f, err
		}
		select {
		case <-o.wake:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Waiting is the number of messages that wait.
func (o *Outbox[F, P]) Waiting() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.waiting
}

func (o *Outbox[F, P]) poll() (P, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil || len(o.frames) == 0 {
		return nil, o.err
	}
	f := o.frames[0]
	if rest := f.cut(); rest != nil {
		o.frames[0] = rest
	} else {
		o.frames[0] = nil
		o.frames = o.frames[1:]
	}
	o.waiting -= f.messages()
	if f.last() {
		o.err = io.EOF
	}
	return f, nil
}

func (o *Outbox[F, P]) signal() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}
