package link

import (
	"context"
	"io"
	"sync"

	"github.com/muster-dev/muster"
)

// maxBatch is the most messages of one type that are merged into one frame, so
// that the receiver can handle the first ones while later ones arrive.
const maxBatch = 4096

// Outbox queues the messages for one worker and merges those that wait while its
// writer is busy, so batching needs no timer. Its methods may be called from any goroutine.
type Outbox struct {
	mu      sync.Mutex
	frames  []*ToWorker   // waiting, in order; messages are added to the last one
	waiting int           // messages in frames
	limit   int           // of waiting
	err     error         // why it ended: io.EOF after a Goodbye
	ended   bool          // a Goodbye was posted
	wake    chan struct{} // holds one token if frames or err may have changed
}

// NewOutbox returns an empty Outbox that fails when more than limit messages wait.
func NewOutbox(limit int) *Outbox {
	return &Outbox{limit: limit, wake: make(chan struct{}, 1)}
}

// Post adds messages and never blocks. The outbox copies the lists of w but may keep what they point to, which
// the caller must not change. Messages after a Goodbye, or after the outbox failed, are dropped.
func (o *Outbox) Post(w *ToWorker) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended || o.err != nil {
		return
	}
	if n := len(o.frames); n == 0 || !o.frames[n-1].merge(w) {
		f := new(ToWorker)
		f.merge(w)
		o.frames = append(o.frames, f)
	}
	o.waiting += w.messages()
	o.ended = w.Goodbye != nil
	if max(o.waiting, len(o.frames)) > o.limit {
		o.err = muster.Errorf(muster.Unavailable, "the worker reads too slowly: %d messages wait for it", o.waiting)
		o.frames = nil
	}
	o.signal()
}

// Next waits for messages and returns all that fit in one frame. After the frame
// with the Goodbye it returns io.EOF, and after too many messages waited,
// Unavailable. One goroutine may call it.
func (o *Outbox) Next(ctx context.Context) (*ToWorker, error) {
	for {
		f, err := o.tryNext()
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

// tryNext is Next without waiting: it returns nil, nil if no frame waits.
func (o *Outbox) tryNext() (*ToWorker, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil || len(o.frames) == 0 {
		return nil, o.err
	}
	f := o.frames[0]
	if rest := f.splitOverflow(); rest != nil {
		o.frames[0] = rest
	} else {
		o.frames[0] = nil
		o.frames = o.frames[1:]
	}
	o.waiting -= f.messages()
	if f.Goodbye != nil {
		o.err = io.EOF
	}
	return f, nil
}

func (o *Outbox) signal() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}
