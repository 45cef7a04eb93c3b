package polllink

import (
	"context"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/link"
)

// maxKept bounds the frames that a session keeps until they are acknowledged,
// in number and, but for the last one, in bytes.
const (
	maxKept      = 64
	maxKeptBytes = link.MaxFrame
)

// serverConn is the server's side of one session. Requests come and go; it stays.
type serverConn struct {
	codec  link.ServerCodec
	expire *time.Timer
	opened time.Time
	peer   string

	mu       sync.Mutex
	changed  chan struct{} // closed and replaced when anything below changes
	gone     bool          // nobody polls any more
	closed   bool          // by the server: what is kept may still be collected
	kept     [][]byte      // frames not yet acknowledged
	keptSize int
	acked    uint64 // the frame before kept[0]
	up       []byte // one frame that Recv has not taken yet
	got      uint64 // number of the last frame that came
	sender   int    // number of the current send request
	receiver int    // number of the current recv request
}

func newServerConn(peer string) *serverConn {
	return &serverConn{changed: make(chan struct{}), peer: peer}
}

// Peer implements link.ServerConn.
func (c *serverConn) Peer() string { return c.peer }

// notify wakes whoever waits for a change. The caller holds mu.
func (c *serverConn) notify() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// until waits, with mu held before and after, until ready says so.
func (c *serverConn) until(ctx context.Context, ready func() bool) error {
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
	if !c.gone {
		c.expire.Reset(silence)
	}
}

// hangUp ends the session from the worker's side: what came before is still read.
func (c *serverConn) hangUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.expire.Stop()
	if !c.gone {
		c.gone = true
		c.notify()
	}
}

// Close ends the session from the server's side: what was sent before may still be collected.
func (c *serverConn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.closed = true
		c.up = nil
		c.notify()
	}
	return nil
}

// Send keeps the frame for the next poll. It blocks while too much is kept.
func (c *serverConn) Send(ctx context.Context, f *link.ToWorker) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.until(ctx, func() bool {
		return c.closed || c.gone || len(c.kept) < maxKept && c.keptSize < maxKeptBytes
	})
	if err != nil {
		return err
	}
	if c.closed || c.gone {
		return errEnded()
	}
	b, err := c.codec.Encode(f)
	if err != nil {
		return err
	}
	c.kept = append(c.kept, b)
	c.keptSize += len(b)
	c.notify()
	return nil
}

// Recv takes the frame that the last send request brought.
func (c *serverConn) Recv(ctx context.Context) (*link.ToServer, error) {
	c.mu.Lock()
	err := c.until(ctx, func() bool { return c.up != nil || c.closed || c.gone })
	up := c.up
	if err == nil && up != nil {
		c.up = nil
		c.notify()
	}
	c.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if up == nil {
		return nil, errEnded()
	}
	return c.codec.Decode(up)
}

func errEnded() error { return muster.Errorf(muster.Unavailable, "the poll session ended") }

// deliver hands frame seq to Recv. A frame that came before is confirmed again.
func (c *serverConn) deliver(ctx context.Context, seq uint64, b []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sender++
	me := c.sender
	c.notify() // an older request ends
	err := c.until(ctx, func() bool { return c.up == nil || c.closed || c.gone || c.sender != me || seq <= c.got })
	switch {
	case err != nil:
		return muster.Errorf(muster.Unavailable, "the server is busy: send the frame again")
	case c.sender != me:
		return errSuperseded()
	case seq <= c.got:
		return nil
	case c.closed || c.gone:
		return errGone
	case seq != c.got+1:
		return muster.Errorf(muster.Invalid, "seq: is %d, but %d comes next", seq, c.got+1)
	}
	c.got, c.up = seq, b
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
	last := c.acked + uint64(len(c.kept))
	if after < c.acked || after > last {
		return nil, muster.Errorf(muster.Invalid, "after: is %d, but frames %d to %d are here", after, c.acked+1, last)
	}
	for c.acked < after {
		c.keptSize -= len(c.kept[0])
		c.kept[0] = nil
		c.kept = c.kept[1:]
		c.acked++
	}
	c.receiver++
	me := c.receiver
	c.notify() // an older request ends, and Send may have room
	err := c.until(ctx, func() bool { return len(c.kept) > 0 || c.closed || c.gone || c.receiver != me })
	switch {
	case err != nil:
		return nil, nil // nothing to say for now: the worker asks again
	case c.receiver != me:
		return nil, errSuperseded()
	case len(c.kept) == 0:
		return nil, errGone
	}
	n, size := 0, 0
	for n < len(c.kept) && (n == 0 || size+len(c.kept[n]) <= link.MaxFrame) {
		size += len(c.kept[n])
		n++
	}
	return c.kept[:n:n], nil
}
