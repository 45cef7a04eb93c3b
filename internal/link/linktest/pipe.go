package linktest

import (
	"context"
	"io"
	"sync"
	"sync/atomic"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/link"
)

// Pipe returns both ends of a session in memory. Frames pass through the codec, and each direction buffers
// up to depth of them. It works inside testing/synctest.
func Pipe(depth int) (link.WorkerConn, link.ServerConn) {
	p := &pipe{up: make(chan []byte, depth), down: make(chan []byte, depth), done: make(chan struct{})}
	return &pipeWorker{pipe: p}, &pipeServer{pipe: p}
}

type pipe struct {
	up, down chan []byte
	done     chan struct{}
	once     sync.Once
}

// Close closes both ends. Frames sent before can still be received.
func (p *pipe) Close() error {
	p.once.Do(func() { close(p.done) })
	return nil
}

func errClosed() error { return muster.Errorf(muster.Unavailable, "the connection ended") }

func (p *pipe) send(ctx context.Context, ch chan []byte, b []byte) error {
	select {
	case <-p.done:
		return errClosed()
	default:
	}
	select {
	case ch <- b:
		return nil
	case <-p.done:
		return errClosed()
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *pipe) recv(ctx context.Context, ch chan []byte) ([]byte, error) {
	select {
	case b := <-ch:
		return b, nil
	default:
	}
	select {
	case b := <-ch:
		return b, nil
	case <-p.done:
		return nil, errClosed()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

type pipeWorker struct {
	*pipe

	codec link.WorkerCodec
}

func (c *pipeWorker) Send(ctx context.Context, f *link.ToServer) error {
	b, err := c.codec.Encode(f)
	if err != nil {
		return err
	}
	return c.send(ctx, c.up, b)
}

func (c *pipeWorker) Recv(ctx context.Context) (*link.ToWorker, error) {
	b, err := c.recv(ctx, c.down)
	if err != nil {
		return nil, err
	}
	return c.codec.Decode(b)
}

type pipeServer struct {
	*pipe

	codec link.ServerCodec
}

// PipeRemoteIP is the RemoteIP of the server's end of a Pipe.
const PipeRemoteIP = "192.0.2.1"

// RemoteIP implements link.ServerConn.
func (c *pipeServer) RemoteIP() string { return PipeRemoteIP }

func (c *pipeServer) Send(ctx context.Context, f *link.ToWorker) error {
	b, err := c.codec.Encode(f)
	if err != nil {
		return err
	}
	return c.send(ctx, c.down, b)
}

func (c *pipeServer) Recv(ctx context.Context) (*link.ToServer, error) {
	b, err := c.recv(ctx, c.up)
	if err != nil {
		return nil, err
	}
	return c.codec.Decode(b)
}

// SendRaw sends text from either end of a Pipe without the codec.
func SendRaw(ctx context.Context, conn interface{ Close() error }, text string) error {
	switch c := conn.(type) {
	case *pipeWorker:
		return c.send(ctx, c.up, []byte(text))
	case *pipeServer:
		return c.send(ctx, c.down, []byte(text))
	}
	return muster.Errorf(muster.Invalid, "%T is not an end of a Pipe", conn)
}

// FrameQueue is a link.FrameSource with the frames that a test posts.
type FrameQueue struct {
	frames chan *link.ToServer
	ended  atomic.Bool
}

var _ link.FrameSource = (*FrameQueue)(nil)

// NewFrameQueue returns an empty FrameQueue.
func NewFrameQueue() *FrameQueue { return &FrameQueue{frames: make(chan *link.ToServer, 1000)} }

// Post implements link.FrameSource.
func (w *FrameQueue) Post(f *link.ToServer) { w.frames <- f }

// Next implements link.FrameSource.
func (w *FrameQueue) Next(ctx context.Context) (*link.ToServer, error) {
	if w.ended.Load() {
		return nil, io.EOF
	}
	select {
	case f := <-w.frames:
		w.ended.Store(f.Goodbye != nil)
		return f, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
