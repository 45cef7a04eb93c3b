package wire

import (
	"errors"
	"net"
	"sync"

	"github.com/muster-dev/muster/internal/agent/shim/fault"
)

// Outbox sends frames over a connection. Whoever puts something in never waits for the
// other side. It is bounded by what the other side has asked for and by maxUnsent. A panic
// while it sends closes the connection: what was sent may be a part of a frame. Its
// methods may be called by several goroutines at once.
type Outbox struct {
	conn          net.Conn
	writeNonblock func(b []byte) int // writes what fits at once; nil where that cannot be known
	gather        func()             // queues more before each sending, or nil

	writing   sync.Mutex // held by the one who writes to conn
	unwritten []byte     // taken out of buf and not written yet; guarded by writing
	flushed   []chan struct{}

	mu        sync.Mutex
	buf       []byte
	finishing bool          // what is there is the last
	err       error         // the end: nothing is sent any more
	wake      chan struct{} // holds one token if Run may have something to do
	waiting   []chan struct{}
}

// maxUnsent is how many bytes may wait for the other side; more than that, and it
// does not live any more.
const maxUnsent = 64 << 20

var (
	// ErrClosed says that there is nobody to send to any more.
	ErrClosed  = errors.New("the connection was closed")
	errStalled = errors.New("the other side does not take what it asked for")
)

// NewOutbox sends over conn, and closes it at the end. Before each sending gather, if it is not nil, may Queue
// more; it is called by one goroutine at a time. Somebody has to Run it.
func NewOutbox(conn net.Conn, gather func()) *Outbox {
	return &Outbox{conn: conn, writeNonblock: nonblockingWriter(conn), gather: gather, wake: make(chan struct{}, 1)}
}

// Send takes a frame, and sends it at once if the system takes it. An error means that
// it never will be sent.
func (o *Outbox) Send(f any) error {
	err := o.Queue(f)
	if err == nil {
		o.Flush()
	}
	return err
}

// Queue takes a frame that the next Flush sends.
func (o *Outbox) Queue(f any) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.add(f)
}

func (o *Outbox) add(f any) error {
	if o.err != nil {
		return o.err
	}
	buf, err := AppendFrame(o.buf, f)
	if err != nil {
		return err
	}
	if o.buf = buf; len(buf) > maxUnsent {
		o.fail(errStalled)
		return o.err
	}
	return nil
}

// SendAndWait returns when the system has the frame: it arrives whatever becomes of
// this process. It returns also when the frame cannot be sent any more.
func (o *Outbox) SendAndWait(f any) error {
	o.mu.Lock()
	if err := o.add(f); err != nil {
		o.mu.Unlock()
		return err
	}
	sent := make(chan struct{})
	o.waiting = append(o.waiting, sent)
	o.mu.Unlock()
	o.Flush()
	<-sent
	return nil
}

// Flush sends what the system takes at once, and leaves the rest to Run.
func (o *Outbox) Flush() { o.protect(o.flush) }

// protect calls f, and closes the connection if f panics.
func (o *Outbox) protect(f func()) {
	err := fault.Run(f)
	if err == nil {
		return
	}
	o.Close(err)
	o.writing.Lock()
	defer o.writing.Unlock()
	o.notifyWritten() // it never will
}

func (o *Outbox) flush() {
	if o.writeNonblock == nil || !o.writing.TryLock() {
		o.wakeRun()
		return
	}
	defer o.writing.Unlock()
	o.collect()
	o.unwritten = o.unwritten[o.writeNonblock(o.unwritten):]
	if len(o.unwritten) > 0 {
		o.wakeRun()
		return
	}
	o.notifyWritten()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.finishing || len(o.buf) > 0 {
		o.wakeRun()
	}
}

// collect moves what is to be sent from buf to rest. writing is held.
func (o *Outbox) collect() {
	if o.gather != nil {
		o.gather()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.unwritten) > 0 { // the other side is slow
		o.unwritten = append(o.unwritten, o.buf...)
		o.buf = o.buf[:0]
	} else {
		o.unwritten, o.buf = o.buf, o.unwritten[:0]
	}
	if cap(o.buf) > maxKeptBuffer {
		o.buf = nil
	}
	o.flushed = append(o.flushed, o.waiting...)
	o.waiting = nil
}

// notifyWritten tells those who wait that all of rest is written. writing is held.
func (o *Outbox) notifyWritten() {
	for _, w := range o.flushed {
		close(w)
	}
	o.flushed = nil
}

// Finish lets Run end once everything is sent.
func (o *Outbox) Finish() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.finishing = true
	o.wakeRun()
}

// Close ends it at once. It may be called again; the first reason is what Put returns from then on.
func (o *Outbox) Close(reason error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.fail(reason)
}

// Err is why it was closed, nil if it is open: ErrClosed by the other side, a *fault.PanicError by a panic while it sent.
func (o *Outbox) Err() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

// fail closes the connection. The lock is held.
func (o *Outbox) fail(reason error) {
	if o.err == nil {
		o.err = reason
	}
	o.buf = nil
	for _, w := range o.waiting {
		close(w)
	}
	o.waiting = nil
	_ = o.conn.Close()
	o.wakeRun()
}

// Run sends what nobody could send at once, until the end.
func (o *Outbox) Run() {
	for more := true; more; {
		<-o.wake
		more = false
		o.protect(func() { more = o.writeAll() })
	}
}

// writeAll sends everything, and waits for the other side to take it. It reports false at the
// end.
func (o *Outbox) writeAll() bool {
	o.writing.Lock()
	defer o.writing.Unlock()
	o.collect()
	var err error
	if len(o.unwritten) > 0 {
		_, err = o.conn.Write(o.unwritten)
		o.unwritten = o.unwritten[:0]
	}
	o.notifyWritten()
	o.mu.Lock()
	defer o.mu.Unlock()
	if err != nil || o.finishing && len(o.buf) == 0 {
		o.fail(ErrClosed)
	}
	return o.err == nil
}

// wakeRun has Run look at what there is to send.
func (o *Outbox) wakeRun() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}
