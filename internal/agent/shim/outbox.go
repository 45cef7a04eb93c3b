package shim

import (
	"net"
	"sync"
)

// outbox sends frames over a connection. Whoever puts something in never waits for the
// other side. It is bounded by what the other side has asked for and by maxUnsent.
type outbox struct {
	conn   net.Conn
	try    func(b []byte) int // writes what fits at once; nil where that cannot be known
	gather func()             // queues more before each sending, or nil

	writing sync.Mutex // held by the one who writes to conn
	rest    []byte     // taken out of buf and not written yet; guarded by writing
	sent    []chan struct{}

	mu      sync.Mutex
	buf     []byte
	ending  bool          // what is there is the last
	err     error         // the end: nothing is sent any more
	wake    chan struct{} // holds one token if run may have something to do
	waiting []chan struct{}
}

// maxUnsent is how many bytes may wait for the other side; more than that, and it
// does not live any more.
const maxUnsent = 64 << 20

func newOutbox(conn net.Conn, gather func()) *outbox {
	return &outbox{conn: conn, try: tryWriter(conn), gather: gather, wake: make(chan struct{}, 1)}
}

// put takes a frame, and sends it at once if the system takes it. An error means that
// it never will be sent.
func (o *outbox) put(f any) error {
	err := o.queue(f)
	if err == nil {
		o.flush()
	}
	return err
}

// queue takes a frame that the next flush sends.
func (o *outbox) queue(f any) error {
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
	o.flush()
	<-sent
	return nil
}

// flush sends what the system takes at once, and leaves the rest to run.
func (o *outbox) flush() {
	if o.try == nil || !o.writing.TryLock() {
		token(o.wake)
		return
	}
	defer o.writing.Unlock()
	o.take()
	o.rest = o.rest[o.try(o.rest):]
	if len(o.rest) > 0 {
		token(o.wake)
		return
	}
	o.arrived()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ending || len(o.buf) > 0 {
		token(o.wake)
	}
}

// take moves what is to be sent from buf to rest. writing is held.
func (o *outbox) take() {
	if o.gather != nil {
		o.gather()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.rest) > 0 { // the other side is slow
		o.rest = append(o.rest, o.buf...)
		o.buf = o.buf[:0]
	} else {
		o.rest, o.buf = o.buf, o.rest[:0]
	}
	if cap(o.buf) > keptBuffer {
		o.buf = nil
	}
	o.sent = append(o.sent, o.waiting...)
	o.waiting = nil
}

// arrived tells those who wait that all of rest is written. writing is held.
func (o *outbox) arrived() {
	for _, w := range o.sent {
		close(w)
	}
	o.sent = nil
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

// run sends what nobody could send at once, until the end.
func (o *outbox) run() {
	for {
		<-o.wake
		if !o.send() {
			return
		}
	}
}

// send sends everything, and waits for the other side to take it. It reports false at the
// end.
func (o *outbox) send() bool {
	o.writing.Lock()
	defer o.writing.Unlock()
	o.take()
	var err error
	if len(o.rest) > 0 {
		_, err = o.conn.Write(o.rest)
		o.rest = o.rest[:0]
	}
	o.arrived()
	o.mu.Lock()
	defer o.mu.Unlock()
	if err != nil || o.ending && len(o.buf) == 0 {
		o.fail(errClosed)
	}
	return o.err == nil
}

// token puts one into c unless it holds one.
func token(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
