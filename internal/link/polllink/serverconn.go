package polllink

import (
	"context"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/link"
)

// Limits of the frames that a session keeps until they are acknowledged. The last frame
// may exceed the limit in bytes.
const (
	maxUnacked      = 64
	maxUnackedBytes = link.MaxFrame
)

// serverConn is the server's side of one session, across its requests.
type serverConn struct {
	expire *time.Timer
	opened time.Time
	seal   *link.Seal // nil without signatures

	mu           sync.Mutex
	changed      chan struct{} // closed and replaced when anything below changes
	clientGone   bool          // the worker closed the session, or it timed out
	closed       bool          // by the server; unacked frames can still be collected
	unacked      [][]byte
	unackedBytes int
	acked        uint64 // number of the frame before unacked[0]
	incoming     []byte // one frame that Read has not returned yet
	lastSeq      uint64 // number of the last received frame
	sendRequest  int    // number of the current send request
	recvRequest  int    // number of the current recv request
}

// notify wakes all waitUntil calls. The caller holds mu.
func (c *serverConn) notify() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// waitUntil waits until ready returns true or ctx ends. The caller holds mu, which is released while waiting.
func (c *serverConn) waitUntil(ctx context.Context, ready func() bool) error {
	for !ready() {
		changed := c.changed
		c.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		c.mu.Lock()
		if ctx.Err() != nil && !ready() {
			return ctx.Err()
		}
	}
	return nil
}

// touch restarts the idle timer, unless the session has ended on the worker's side.
func (c *serverConn) touch() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.clientGone {
		c.expire.Reset(idleTimeout)
	}
}

// clientClosed ends the session on the worker's side. Read still returns frames received before.
func (c *serverConn) clientClosed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.expire.Stop()
	if !c.clientGone {
		c.clientGone = true
		c.notify()
	}
}

// Close ends the session on the server's side. The worker can still collect frames sent before.
func (c *serverConn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.closed = true
		c.incoming = nil
		c.notify()
	}
	return nil
}

// Write keeps the frame for the next poll. It blocks while too many are unacknowledged.
func (c *serverConn) Write(ctx context.Context, b []byte, _ bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.waitUntil(ctx, func() bool {
		return c.closed || c.clientGone || len(c.unacked) < maxUnacked && c.unackedBytes < maxUnackedBytes
	})
	if err != nil {
		return err
	}
	if c.closed || c.clientGone {
		return errEnded()
	}
	c.unacked = append(c.unacked, b)
	c.unackedBytes += len(b)
	c.notify()
	return nil
}

// Read returns the frame of the last send request.
func (c *serverConn) Read(ctx context.Context) ([]byte, error) {
	c.mu.Lock()
	err := c.waitUntil(ctx, func() bool { return c.incoming != nil || c.closed || c.clientGone })
	incoming := c.incoming
	if err == nil && incoming != nil {
		c.incoming = nil
		c.notify()
	}
	c.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if incoming == nil {
		return nil, errEnded()
	}
	return incoming, nil
}

func errEnded() error { return muster.Errorf(muster.Unavailable, "the poll session ended") }

// deliver passes frame seq to Read. It confirms a frame that was received before.
func (c *serverConn) deliver(ctx context.Context, seq uint64, b []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sendRequest++
	request := c.sendRequest
	c.notify() // an older request ends
	err := c.waitUntil(ctx, func() bool {
		return c.incoming == nil || c.closed || c.clientGone || c.sendRequest != request || seq <= c.lastSeq
	})
	switch {
	case err != nil:
		return muster.Errorf(muster.Unavailable, "the server is busy: send the frame again")
	case c.sendRequest != request:
		return errSuperseded()
	case seq <= c.lastSeq:
		return nil
	case c.closed || c.clientGone:
		return errSessionEnded
	case seq != c.lastSeq+1:
		return muster.Errorf(muster.Invalid, "seq is %d, want %d", seq, c.lastSeq+1)
	}
	c.lastSeq, c.incoming = seq, b
	c.notify()
	return nil
}

func errSuperseded() error {
	return muster.Errorf(muster.Conflict, "a newer request of this session replaced this one")
}

// collect returns the frames after number after: at least one, and at most MaxFrame bytes if more than one. It
// waits for a frame, and returns none if ctx ends.
func (c *serverConn) collect(ctx context.Context, after uint64) ([][]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := c.acked + uint64(len(c.unacked))
	if after < c.acked || after > last {
		return nil, muster.Errorf(muster.Invalid, "after is %d, but the session has frames %d to %d", after, c.acked+1, last)
	}
	for c.acked < after {
		c.unackedBytes -= len(c.unacked[0])
		c.unacked[0] = nil
		c.unacked = c.unacked[1:]
		c.acked++
	}
	c.recvRequest++
	request := c.recvRequest
	c.notify() // an older request ends, and Write may have room
	err := c.waitUntil(ctx, func() bool { return len(c.unacked) > 0 || c.closed || c.clientGone || c.recvRequest != request })
	switch {
	case err != nil:
		return nil, nil // no frame yet: the worker polls again
	case c.recvRequest != request:
		return nil, errSuperseded()
	case len(c.unacked) == 0:
		return nil, errSessionEnded
	}
	n, size := 0, 0
	for n < len(c.unacked) && (n == 0 || size+len(c.unacked[n]) <= link.MaxFrame) {
		size += len(c.unacked[n])
		n++
	}
	return c.unacked[:n:n], nil
}
