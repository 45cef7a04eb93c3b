package docker

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"
)

// Output is what a container prints, in pieces. Use it from one goroutine; Close may
// be called by another one.
type Output struct {
	r         io.Reader
	close     io.Closer
	remaining int // of the piece
}

type closer func() error

// Close calls it.
func (c closer) Close() error { return c() }

// The streams of an Output, as the engine numbers them.
const (
	Stdout = 1
	Stderr = 2
)

// frameHeaderSize is the size of what comes before a piece: the stream, three zeros and the size, big
// endian.
const frameHeaderSize = 8

// maxFrameSize is far more than engines send at once.
const maxFrameSize = 64 << 20

func newOutput(r io.Reader, c io.Closer) *Output { return &Output{r: r, close: c} }

// Next goes on to the next piece and returns its stream and size. io.EOF says that the
// stream ended between two pieces: the container prints no more, or the connection ended.
func (o *Output) Next() (stream, size int, err error) {
	if o.remaining > 0 {
		if _, err := io.CopyN(io.Discard, o, int64(o.remaining)); err != nil {
			return 0, 0, err
		}
	}
	var head [frameHeaderSize]byte
	if _, err := io.ReadFull(o.r, head[:]); err != nil {
		return 0, 0, err
	}
	n := binary.BigEndian.Uint32(head[4:])
	if head[0] > Stderr || n > maxFrameSize || head[1]|head[2]|head[3] != 0 {
		return 0, 0, fmt.Errorf("the engine sends output in a form that is not understood: % x", head)
	}
	o.remaining = int(n)
	return max(int(head[0]), Stdout), o.remaining, nil
}

// Read reads of the current piece; io.EOF is its end.
func (o *Output) Read(p []byte) (int, error) {
	if o.remaining == 0 {
		return 0, io.EOF
	}
	n, err := o.r.Read(p[:min(len(p), o.remaining)])
	o.remaining -= n
	if errors.Is(err, io.EOF) {
		if o.remaining > 0 {
			return n, io.ErrUnexpectedEOF
		}
		err = nil
	}
	return n, err
}

// Close ends it, and what waits for it.
func (o *Output) Close() error { return o.close.Close() }

// maxTimestamp is the most bytes before the blank that ends a time.
const maxTimestamp = 64

// SplitTimestamp takes a piece of Logs apart: when the engine read it, and what it read.
func SplitTimestamp(frame []byte) (at time.Time, data []byte, err error) {
	i := bytes.IndexByte(frame[:min(len(frame), maxTimestamp)], ' ')
	if i < 0 {
		return at, nil, errors.New("a line of the engine's log has no time")
	}
	if at, err = time.Parse(time.RFC3339Nano, string(frame[:i])); err != nil {
		return at, nil, fmt.Errorf("a line of the engine's log has no time: %w", err)
	}
	return at, frame[i+1:], nil
}
