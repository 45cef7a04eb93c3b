package polllink

import (
	"context"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/link"
)

// maxUnacked bounds the frames that a session keeps until they are acknowledged,
// in number and, but for the last one, in bytes.
const (
	maxUnacked      = 64
	maxUnackedBytes = link.MaxFrame
)

// serverConn is the server's side of one session. Requests come and go; it stays.
type serverConn struct {
	codec    link.ServerCodec
	expire   *time.Timer
	opened   time.Time
	remoteIP string

	mu           sync.Mutex
	changed      chan struct{} // closed and replaced when anything below changes
	clientGone   bool          // nobody polls any more
	closed       bool          // by the server: what is kept may still be collected
	unacked      [][]byte      // frames not yet acknowledged
	unackedBytes int
	acked        uint64 // the frame before kept[0]
	incoming     []byte // one frame that Recv has not taken yet
	lastSeq      uint64 // number of the last frame that came
	sendRequest  int    // number of the current send request
	recvRequest  int    // number of the current recv request
}

func newServerConn(remoteIP string) *serverConn {
	return &serverConn{changed: make(chan struct{}), remoteIP: remoteIP}
}

// RemoteIP implements link.ServerConn.
func (c *serverConn) RemoteIP() string { return c.remoteIP }

// notify wakes whoever waits for a change. The caller holds mu.
func (c *serverConn) notify() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// waitUntil waits, with mu held before and after, until ready says so.
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

// touch notes a sign of life, unless the session has ended from the worker's side.
func (c *serverConn) touch() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.clientGone {
		c.expire.Reset(idleTimeout)
	}
}

// clientClosed ends the session from the worker's side: what came before is still read.
func (c *serverConn) clientClosed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.expire.Stop()
	if !c.clientGone {
		c.clientGone = true
		c.notify()
	}
}

// Close ends the session from the server's side: what was sent before may still be collected.
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

// Send keeps the frame for the next poll. It blocks while too much is kept.
func (c *serverConn) Send(ctx context.Context, f *link.ToWorker) error {
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
	b, err := c.codec.Encode(f)
	if err != nil {
		return err
	}
	c.unacked = append(c.unacked, b)
	c.unackedBytes += len(b)
	c.notify()
	return nil
}

// Recv takes the frame that the last send request brought.
func (c *serverConn) Recv(ctx context.Context) (*link.ToServer, error) {
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
	return c.codec.Decode(incoming)
}

func errEnded() error { return muster.Errorf(muster.Unavailable, "the poll session ended") }

// deliver hands frame seq to Recv. A frame that came before is confirmed again.
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
		return muster.Errorf(muster.Invalid, "seq: is %d, but %d comes next", seq, c.lastSeq+1)
	}
	c.lastSeq, c.incoming = seq, b
	c.notify()
	return nil
}

func errSuperseded() error {
	return muster.Errorf(muster.Conflict, "a newer request of this session took over")
}

// collect returns the frames after the given one, up to a total of MaxFrame bytes but at least
// one. It waits for one, and returns none if none comes.
func (c *serverConn) collect(ctx context.Context, after uint64) ([][]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := c.acked + uint64(len(c.unacked))
	if after < c.acked || after > last {
		return nil, muster.Errorf(muster.Invalid, "after: is %d, but frames %d to %d are here", after, c.acked+1, last)
	}
	for c.acked < after {
		c.unackedBytes -= len(c.unacked[0])
		c.unacked[0] = nil
		c.unacked = c.unacked[1:]
		c.acked++
	}
	c.recvRequest++
	request := c.recvRequest
	c.notify() // an older request ends, and Send may have room
	err := c.waitUntil(ctx, func() bool { return len(c.unacked) > 0 || c.closed || c.clientGone || c.recvRequest != request })
	switch {
	case err != nil:
		return nil, nil // nothing to say for now: the worker asks again
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
