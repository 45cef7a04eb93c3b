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
	r     io.Reader
	close io.Closer
	left  int // of the piece
}

type closer func() error

// Close calls it.
func (c closer) Close() error { return c() }

// The streams of an Output, as the engine numbers them.
const (
	Stdout = 1
	Stderr = 2
)

// pieceHead is the size of what comes before a piece: the stream, three zeros and the size, big
// endian.
const pieceHead = 8

// maxPiece is far more than engines send at once.
const maxPiece = 64 << 20

func newOutput(r io.Reader, c io.Closer) *Output { return &Output{r: r, close: c} }

// Next goes on to the next piece and returns its stream and size. io.EOF says that the
// stream ended between two pieces: the container prints no more, or the connection ended.
func (o *Output) Next() (stream, size int, err error) {
	if o.left > 0 {
		if _, err := io.CopyN(io.Discard, o, int64(o.left)); err != nil {
			return 0, 0, err
		}
	}
	var head [pieceHead]byte
	if _, err := io.ReadFull(o.r, head[:]); err != nil {
		return 0, 0, err
	}
	n := binary.BigEndian.Uint32(head[4:])
	if head[0] > Stderr || n > maxPiece || head[1]|head[2]|head[3] != 0 {
		return 0, 0, fmt.Errorf("the engine sends output in a form that is not understood: % x", head)
	}
	o.left = int(n)
	return max(int(head[0]), Stdout), o.left, nil
}

// Read reads of the current piece; io.EOF is its end.
func (o *Output) Read(p []byte) (int, error) {
	if o.left == 0 {
		return 0, io.EOF
	}
	n, err := o.r.Read(p[:min(len(p), o.left)])
	o.left -= n
	if errors.Is(err, io.EOF) {
		if o.left > 0 {
			return n, io.ErrUnexpectedEOF
		}
		err = nil
	}
	return n, err
}

// Close ends it, and what waits for it.
func (o *Output) Close() error { return o.close.Close() }

// maxStamp is the most bytes before the blank that ends a time.
const maxStamp = 64

// Stamp takes a piece of Logs apart: when the engine read it, and what it read.
func Stamp(piece []byte) (at time.Time, data []byte, err error) {
	i := bytes.IndexByte(piece[:min(len(piece), maxStamp)], ' ')
	if i < 0 {
		return at, nil, errors.New("a line of the engine's log has no time")
	}
	if at, err = time.Parse(time.RFC3339Nano, string(piece[:i])); err != nil {
		return at, nil, fmt.Errorf("a line of the engine's log has no time: %w", err)
	}
	return at, piece[i+1:], nil
}
