package linktest

import (
	"context"
	"io"
	"sync/atomic"

	"github.com/muster-dev/muster/internal/link"
)

// Words is a worker's words as a test posts them, one frame each.
type Words struct {
	frames chan *link.ToServer
	ended  atomic.Bool
}

var _ link.Words = (*Words)(nil)

// NewWords returns an empty Words.
func NewWords() *Words { return &Words{frames: make(chan *link.ToServer, 1000)} }

// Post implements link.Words.
func (w *Words) Post(f *link.ToServer) { w.frames <- f }

// Take implements link.Words.
func (w *Words) Take(ctx context.Context) (*link.ToServer, error) {
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
