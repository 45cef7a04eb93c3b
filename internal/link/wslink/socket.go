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

// socket is what both sides do with a WebSocket.
type socket struct {
	ws   *websocket.Conn
	said atomic.Bool  // a Goodbye was sent
	in   bytes.Buffer // the frame being read; decoding copies out of it
}

// keepBuffer is the largest read buffer that an idle session holds on to.
const keepBuffer = 32 << 10

func (s *socket) write(ctx context.Context, b []byte, last bool) error {
	if err := s.ws.Write(ctx, websocket.MessageText, b); err != nil {
		return ended(ctx, err)
	}
	if last {
		s.said.Store(true)
	}
	return nil
}

// read returns the next message, valid until the one after it.
func (s *socket) read(ctx context.Context) ([]byte, error) {
	if s.in.Cap() > keepBuffer {
		s.in = bytes.Buffer{}
	}
	s.in.Reset()
	kind, r, err := s.ws.Reader(ctx)
	if err == nil {
		_, err = s.in.ReadFrom(r)
	}
	switch {
	case errors.Is(err, websocket.ErrMessageTooBig):
		return nil, muster.Errorf(muster.TooLarge, "a frame is longer than %d bytes", link.MaxFrame)
	case err != nil:
		return nil, ended(ctx, err)
	case kind != websocket.MessageText:
		return nil, muster.Errorf(muster.Invalid, "a frame came as a binary message: frames are text")
	}
	return s.in.Bytes(), nil
}

// Close ends the connection. After a Goodbye it lets the other side read it first, for a few
// seconds at most: a connection that is closed while bytes come in is reset, and what was sent last is lost.
func (s *socket) Close() error {
	if s.said.Load() {
		_ = s.ws.Close(websocket.StatusNormalClosure, "") // gone either way
	} else {
		_ = s.ws.CloseNow()
	}
	return nil
}

// ended makes the error of a connection that broke or was closed.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return muster.Errorf(muster.Unavailable, "the connection ended: %w", err)
}
