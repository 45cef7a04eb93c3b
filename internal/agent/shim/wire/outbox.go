package wire

import (
	"errors"
	"net"
	"sync"

	"github.com/muster-dev/muster/internal/agent/shim/fault"
	"github.com/muster-dev/muster/internal/wake"
)

// Outbox sends frames over a connection. Senders do not wait for the other side. It is bounded by what the other side has requested and by
// maxUnsent. A panic during a write closes the connection, since a part of a frame may have been sent. Its methods may be called concurrently.
type Outbox struct {
	conn          net.Conn
	writeNonblock func(b []byte) int // writes what fits without waiting; nil if not supported
	gather        func()             // queues more before each write, or nil

	writing   sync.Mutex // held during writes to conn
	unwritten []byte     // taken from buf and not written yet; guarded by writing
	flushed   []chan struct{}

	mu        sync.Mutex
	buf       []byte
	finishing bool          // close after the last frame
	err       error         // why it was closed, nil if it is open
	wake      chan struct{} // holds one token if Run may have something to do
	waiting   []chan struct{}
}

// maxUnsent is how many bytes may wait for the other side, which counts as hung beyond that.
const maxUnsent = 64 << 20

var (
	// ErrClosed says that the connection is closed.
	ErrClosed  = errors.New("the connection was closed")
	errStalled = errors.New("the other side does not read what it requested")
)

// NewOutbox returns an Outbox for conn, which it closes at the end. gather may Queue more frames before each write; it is called by one goroutine
// at a time, and may be nil. The caller has to Run it.
func NewOutbox(conn net.Conn, gather func()) *Outbox {
	return &Outbox{conn: conn, writeNonblock: nonblockingWriter(conn), gather: gather, wake: make(chan struct{}, 1)}
}

// Send sends a frame, without waiting if the system accepts it. An error means that it will never be sent.
func (o *Outbox) Send(f any) error {
	err := o.Queue(f)
	if err == nil {
		o.Flush()
	}
	return err
}

// Queue queues a frame for the next Flush.
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

// SendAndWait returns when the system has the frame: it will arrive even if this process ends. It also returns when the frame can no longer be
// sent.
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

// Flush writes what the system accepts without waiting, and leaves the rest to Run.
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
	o.notifyWritten() // it never will be
}

func (o *Outbox) flush() {
	if o.writeNonblock == nil || !o.writing.TryLock() {
		wake.Set(o.wake)
		return
	}
	defer o.writing.Unlock()
	o.collect()
	o.unwritten = o.unwritten[o.writeNonblock(o.unwritten):]
	if len(o.unwritten) > 0 {
		wake.Set(o.wake)
		return
	}
	o.notifyWritten()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.finishing || len(o.buf) > 0 {
		wake.Set(o.wake)
	}
}

// collect moves buf to unwritten. writing is held.
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

// notifyWritten wakes the callers of SendAndWait. writing is held.
func (o *Outbox) notifyWritten() {
	for _, w := range o.flushed {
		close(w)
	}
	o.flushed = nil
}

// Finish ends Run once everything is sent.
func (o *Outbox) Finish() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.finishing = true
	wake.Set(o.wake)
}

// Close closes the connection at once. Later calls do nothing; the first reason is the error of later sends.
func (o *Outbox) Close(reason error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.fail(reason)
}

// Err returns why it was closed, nil if it is open: ErrClosed by the other side, a *fault.PanicError after a panic during a write.
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
	wake.Set(o.wake)
}

// Run writes what could not be written without waiting, until the end.
func (o *Outbox) Run() {
	for more := true; more; {
		<-o.wake
		more = false
		o.protect(func() { more = o.writeAll() })
	}
}

// writeAll writes everything, and waits for the other side to accept it. It returns false at the end.
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
