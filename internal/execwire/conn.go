package execwire

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/muster-dev/muster"
)

// Transport carries frames in order. Read and Write may be called at the same time, each by one goroutine.
type Transport interface {
	Write(ctx context.Context, frame []byte, last bool) error
	Read(ctx context.Context) ([]byte, error) // the result is valid until the next call
	Close() error                             // safe to call at any time and more than once
}

// writeTimeout is how long the other side may take to accept one frame.
const writeTimeout = 30 * time.Second

// Conn is one end of a connection. Its methods may be called concurrently.
type Conn struct {
	t Transport

	sending  sync.Mutex // held while a frame is written
	lastSent time.Time

	mu      sync.Mutex
	changed chan struct{} // closed and replaced when anything below changes
	credit  int           // bytes of data that may be sent
	err     error         // why the connection ended
	streams map[string]*incoming
	pending int // bytes received and not read yet
}

// incoming is the data of one stream that has not been read.
type incoming struct {
	data []byte
	eof  bool
}

// NewConn returns an end of a connection. Its owner calls Run.
func NewConn(t Transport) *Conn {
	return &Conn{t: t, changed: make(chan struct{}), credit: Window, streams: map[string]*incoming{}, lastSent: time.Now()}
}

// notify wakes all waits. The caller holds mu.
func (c *Conn) notify() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// Run reads frames until the connection ends, and calls handle with those that are neither data, nor EOF, nor acknowledgements, nor
// keep-alives. It sends keep-alives. handle must not block; if it returns an error, Run does, and io.EOF ends Run without one. At the end all
// readers and writers fail, and the transport is closed.
func (c *Conn) Run(ctx context.Context, handle func(*Frame) error) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	var beat sync.WaitGroup
	beat.Go(func() { c.keepAlive(ctx) })
	defer func() {
		c.end(err)
		cancel()
		beat.Wait()
		_ = c.t.Close()
	}()
	for {
		b, err := c.read(ctx)
		if err != nil {
			return err
		}
		var f Frame
		if err := json.Unmarshal(b, &f); err != nil {
			return muster.Errorf(muster.Invalid, "the other side sent an invalid frame: %w", err)
		}
		switch {
		case len(f.Data) > 0 || f.EOF:
			err = c.receive(&f)
		case f.Ack != 0:
			err = c.acknowledged(f.Ack)
		case f.Start != nil || f.Ready || f.Resize != nil || f.Signal != "" || f.Note != "" || f.Exit != nil || f.Error != nil:
			if err = handle(&f); errors.Is(err, io.EOF) {
				return nil
			}
		}
		if err != nil {
			return err
		}
	}
}

// read returns the next frame.
func (c *Conn) read(ctx context.Context) ([]byte, error) {
	readCtx, cancel := context.WithTimeoutCause(ctx, Silence, errSilence)
	defer cancel()
	b, err := c.t.Read(readCtx)
	if err != nil && ctx.Err() == nil && readCtx.Err() != nil {
		return nil, errSilence
	}
	return b, err
}

var errSilence = muster.Errorf(muster.Unavailable, "the other side sent nothing for %s", Silence)

// First returns the first frame, before Run.
func (c *Conn) First(ctx context.Context, timeout time.Duration) (*Frame, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	b, err := c.t.Read(ctx)
	if err != nil {
		return nil, err
	}
	var f Frame
	if err := json.Unmarshal(b, &f); err != nil {
		return nil, muster.Errorf(muster.Invalid, "the first frame is invalid: %w", err)
	}
	return &f, nil
}

func (c *Conn) keepAlive(ctx context.Context) {
	tick := time.NewTicker(KeepAlive / 3)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		c.sending.Lock()
		idle := time.Since(c.lastSent)
		c.sending.Unlock()
		if idle >= KeepAlive-KeepAlive/3 {
			_ = c.Send(ctx, &Frame{}) // Run notices the end of the connection
		}
	}
}

// Send sends a frame without data.
func (c *Conn) Send(ctx context.Context, f *Frame) error {
	b, err := json.Marshal(f)
	if err != nil {
		return err
	}
	c.sending.Lock()
	defer c.sending.Unlock()
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	c.lastSent = time.Now()
	return c.t.Write(ctx, b, f.Exit != nil || f.Error != nil)
}

// end makes all readers and writers fail.
func (c *Conn) end(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
		if err == nil {
			c.err = errEnded
		}
		c.notify()
	}
}

var errEnded = muster.Errorf(muster.Unavailable, "the connection ended")

func (c *Conn) receive(f *Frame) error {
	if !slices.Contains([]string{Stdin, Stdout, Stderr}, f.Stream) {
		return muster.Errorf(muster.Invalid, "the other side sent data of an unknown stream")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.stream(f.Stream)
	c.pending += len(f.Data)
	if c.pending > Window || s.eof {
		return muster.Errorf(muster.Invalid, "the other side sent more data than it may")
	}
	s.data = append(s.data, f.Data...)
	s.eof = f.EOF
	c.notify()
	return nil
}

// stream returns an incoming stream. The caller holds mu.
func (c *Conn) stream(name string) *incoming {
	s := c.streams[name]
	if s == nil {
		s = &incoming{}
		c.streams[name] = s
	}
	return s
}

func (c *Conn) acknowledged(n int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n < 0 || n > Window-c.credit {
		return muster.Errorf(muster.Invalid, "the other side acknowledged data that it was not sent")
	}
	c.credit += n
	c.notify()
	return nil
}

// Reader returns the data of an incoming stream. A Read acknowledges what it returns. After the data of an ended connection it fails, unless
// the stream had ended before.
func (c *Conn) Reader(ctx context.Context, stream string) io.Reader {
	return &reader{conn: c, ctx: ctx, stream: stream}
}

type reader struct {
	conn   *Conn
	ctx    context.Context //nolint:containedctx // of all reads
	stream string
}

// Read implements io.Reader.
func (r *reader) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	c := r.conn
	c.mu.Lock()
	for {
		s := c.stream(r.stream)
		switch {
		case len(s.data) > 0:
			n := copy(b, s.data)
			if s.data = s.data[n:]; len(s.data) == 0 {
				s.data = nil
			}
			c.pending -= n
			c.mu.Unlock()
			_ = c.Send(r.ctx, &Frame{Ack: n}) // Run notices the end of the connection
			return n, nil
		case s.eof:
			c.mu.Unlock()
			return 0, io.EOF
		case c.err != nil:
			err := c.err
			c.mu.Unlock()
			return 0, err
		}
		if err := c.wait(r.ctx); err != nil {
			c.mu.Unlock()
			return 0, err
		}
	}
}

// wait waits for a change. The caller holds mu, which is released meanwhile.
func (c *Conn) wait(ctx context.Context) error {
	changed := c.changed
	c.mu.Unlock()
	defer c.mu.Lock()
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Writer sends the data of a stream. A Write waits until the other side has room; Close sends the end of the stream.
func (c *Conn) Writer(ctx context.Context, stream string) io.WriteCloser {
	return &writer{conn: c, ctx: ctx, stream: stream}
}

type writer struct {
	conn   *Conn
	ctx    context.Context //nolint:containedctx // of all writes
	stream string
}

// Write implements io.Writer.
func (w *writer) Write(b []byte) (n int, err error) {
	for n < len(b) {
		size, err := w.conn.take(w.ctx, min(len(b)-n, MaxChunk))
		if err == nil {
			err = w.conn.Send(w.ctx, &Frame{Stream: w.stream, Data: b[n : n+size]})
		}
		if err != nil {
			return n, err
		}
		n += size
	}
	return n, nil
}

// Close implements io.Closer.
func (w *writer) Close() error { return w.conn.Send(w.ctx, &Frame{Stream: w.stream, EOF: true}) }

// take takes credit for at most n bytes of data, at least one, and waits until there is some.
func (c *Conn) take(ctx context.Context, n int) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.credit == 0 && c.err == nil {
		if err := c.wait(ctx); err != nil {
			return 0, err
		}
	}
	if c.err != nil {
		return 0, c.err
	}
	n = min(n, c.credit)
	c.credit -= n
	return n, nil
}
