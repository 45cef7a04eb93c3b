package linktest

import (
	"context"
	"io"
	"sync"
	"sync/atomic"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/link"
)

// PipeRemoteIP is the RemoteIP of the server's end of a Pipe.
const PipeRemoteIP = "192.0.2.1"

// Pipe returns both ends of a session in memory. Frames pass through the codec, and each direction buffers
// up to depth of them. It works inside testing/synctest.
func Pipe(depth int) (link.WorkerConn, link.ServerConn) {
	up, down, done := make(chan []byte, depth), make(chan []byte, depth), make(chan struct{})
	closeBoth := sync.OnceFunc(func() { close(done) })
	worker := &pipeEnd{out: up, in: down, done: done, close: closeBoth}
	server := &pipeEnd{out: down, in: up, done: done, close: closeBoth}
	return link.NewWorkerConn(worker), link.NewServerConn(server, PipeRemoteIP)
}

type pipeEnd struct {
	out   chan<- []byte
	in    <-chan []byte
	done  <-chan struct{}
	close func()
}

// Close closes both ends. Frames sent before can still be received.
func (p *pipeEnd) Close() error {
	p.close()
	return nil
}

func errClosed() error { return muster.Errorf(muster.Unavailable, "the connection ended") }

// Write implements link.FrameConn.
func (p *pipeEnd) Write(ctx context.Context, b []byte, _ bool) error {
	select {
	case <-p.done:
		return errClosed()
	default:
	}
	select {
	case p.out <- b:
		return nil
	case <-p.done:
		return errClosed()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Read implements link.FrameConn.
func (p *pipeEnd) Read(ctx context.Context) ([]byte, error) {
	select {
	case b := <-p.in:
		return b, nil
	default:
	}
	select {
	case b := <-p.in:
		return b, nil
	case <-p.done:
		return nil, errClosed()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// SendRaw sends text from either end of a Pipe without the codec.
func SendRaw(ctx context.Context, conn interface{ Close() error }, text string) error {
	c, ok := conn.(link.FrameConn)
	if !ok {
		return muster.Errorf(muster.Invalid, "%T is not an end of a Pipe", conn)
	}
	return c.Write(ctx, []byte(text), false)
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
