package shim

import (
	"net"
	"sync"
)

// outbox sends frames over a connection. Whoever puts something in never waits for the
// other side. It is bounded by what the other side has asked for and by maxUnsent.
type outbox struct {
	conn net.Conn

	mu      sync.Mutex
	buf     []byte        // not taken by write yet
	ending  bool          // what is there is the last
	err     error         // the end: nothing is sent any more
	wake    chan struct{} // holds one token if there may be something to do
	waiting []chan struct{}
}

// maxUnsent is how many bytes may wait for the other side; more than that, and it
// does not live any more.
const maxUnsent = 64 << 20

func newOutbox(conn net.Conn) *outbox { return &outbox{conn: conn, wake: make(chan struct{}, 1)} }

// put takes a frame to be sent. An error means that it never will be.
func (o *outbox) put(f any) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.add(f)
}

func (o *outbox) add(f any) error {
	if o.err != nil {
		return o.err
	}
	buf, err := appendFrame(o.buf, f)
	if err != nil {
		return err
	}
	if o.buf = buf; len(buf) > maxUnsent {
		o.fail(errStalled)
		return o.err
	}
	token(o.wake)
	return nil
}

// putAndWait returns when the system has the frame: it arrives whatever becomes of
// this process.
func (o *outbox) putAndWait(f any) error {
	o.mu.Lock()
	if err := o.add(f); err != nil {
		o.mu.Unlock()
		return err
	}
	sent := make(chan struct{})
	o.waiting = append(o.waiting, sent)
	o.mu.Unlock()
	<-sent
	return nil
}

// finish lets run end once everything is sent.
func (o *outbox) finish() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ending = true
	token(o.wake)
}

// close ends it at once. It may be called again.
func (o *outbox) close(why error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.fail(why)
}

// fail closes the connection. The lock is held.
func (o *outbox) fail(why error) {
	if o.err == nil {
		o.err = why
	}
	o.buf = nil
	for _, w := range o.waiting {
		close(w)
	}
	o.waiting = nil
	_ = o.conn.Close()
	token(o.wake)
}

// run sends until the end. gather, if there is one, adds more frames before each
// sending.
func (o *outbox) run(gather func()) {
	var spare []byte
	for {
		<-o.wake
		if gather != nil {
			gather()
		}
		o.mu.Lock()
		if o.err != nil {
			o.mu.Unlock()
			return
		}
		out, waiting := o.buf, o.waiting
		o.buf, o.waiting = spare[:0], nil
		ending := o.ending
		o.mu.Unlock()
		var err error
		if len(out) > 0 {
			_, err = o.conn.Write(out)
		}
		for _, w := range waiting {
			close(w)
		}
		if err != nil || ending {
			o.close(errClosed)
			return
		}
		if spare = out; cap(spare) > keptBuffer {
			spare = nil
		}
	}
}

// token puts one into c unless it holds one.
func token(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
