package linktest

import (
	"context"
	"io"
	"sync/atomic"

	"github.com/muster-dev/muster/internal/link"
)

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
