// Package wslink carries link sessions over WebSocket: one text message a
// frame, at link.PathSocket, with the worker's key as the bearer token of the
// upgrade request. Messages are not compressed: frames are small or, like logs
// in base64, cost more time to deflate than a local network saves.
package wslink

import (
	"bytes"
	"context"
	"errors"
	"sync/atomic"

	"github.com/coder/websocket"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/link"
)

// socket is the link.FrameConn of a WebSocket, on both sides.
type socket struct {
	ws          *websocket.Conn
	goodbyeSent atomic.Bool
	readBuf     bytes.Buffer // the frame being read; decoding copies from it
}

// maxIdleBuffer is the largest read buffer that an idle session keeps.
const maxIdleBuffer = 32 << 10

// Write implements link.FrameConn.
func (s *socket) Write(ctx context.Context, b []byte, last bool) error {
	if err := s.ws.Write(ctx, websocket.MessageText, b); err != nil {
		return connError(ctx, err)
	}
	if last {
		s.goodbyeSent.Store(true)
	}
	return nil
}

// Read implements link.FrameConn.
func (s *socket) Read(ctx context.Context) ([]byte, error) {
	if s.readBuf.Cap() > maxIdleBuffer {
		s.readBuf = bytes.Buffer{}
	}
	s.readBuf.Reset()
	kind, r, err := s.ws.Reader(ctx)
	if err == nil {
		_, err = s.readBuf.ReadFrom(r)
	}
	switch {
	case errors.Is(err, websocket.ErrMessageTooBig):
		return nil, muster.Errorf(muster.TooLarge, "a frame is longer than %d bytes", link.MaxFrame)
	case err != nil:
		return nil, connError(ctx, err)
	case kind != websocket.MessageText:
		return nil, muster.Errorf(muster.Invalid, "a frame is a binary message: it must be text")
	}
	return s.readBuf.Bytes(), nil
}

// Close ends the connection. After a Goodbye it first waits a few seconds for the other side to read it:
// closing while data arrives resets the connection, and the last frames sent are lost.
func (s *socket) Close() error {
	if s.goodbyeSent.Load() {
		_ = s.ws.Close(websocket.StatusNormalClosure, "") // closed even on error
	} else {
		_ = s.ws.CloseNow()
	}
	return nil
}

// connError returns the error of a connection that broke or was closed.
func connError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return muster.Errorf(muster.Unavailable, "the connection ended: %w", err)
}
