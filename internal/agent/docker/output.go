package docker

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"
)

// Output is the output of a container, in frames. One goroutine may use it; others may call Close.
type Output struct {
	frame io.LimitedReader // R is the whole output, N is what is left of the current frame
	close io.Closer
}

type closer func() error

// Close implements io.Closer.
func (c closer) Close() error { return c() }

// The streams of an Output, as the engine numbers them.
const (
	Stdout = 1
	Stderr = 2
)

// frameHeaderSize is the size of a frame's header: the stream, three zeros and the size, big endian.
const frameHeaderSize = 8

// maxFrameSize is much larger than the frames of engines.
const maxFrameSize = 64 << 20

func newOutput(r io.Reader, c io.Closer) *Output {
	return &Output{frame: io.LimitedReader{R: r}, close: c}
}

// Next advances to the next frame and returns its stream and size. io.EOF means that the output ended between two frames: the container
// has exited, or the connection was closed.
func (o *Output) Next() (stream, size int, err error) {
	if _, err := io.Copy(io.Discard, o); err != nil {
		return 0, 0, err
	}
	var head [frameHeaderSize]byte
	if _, err := io.ReadFull(o.frame.R, head[:]); err != nil {
		return 0, 0, err
	}
	n := binary.BigEndian.Uint32(head[4:])
	if head[0] > Stderr || n > maxFrameSize || head[1]|head[2]|head[3] != 0 {
		return 0, 0, fmt.Errorf("the engine sent an invalid output frame: % x", head)
	}
	o.frame.N = int64(n)
	return max(int(head[0]), Stdout), int(n), nil // stream 0, standard input, is that of a terminal
}

// Read reads from the current frame; io.EOF is its end.
func (o *Output) Read(p []byte) (int, error) {
	n, err := o.frame.Read(p)
	switch {
	case errors.Is(err, io.EOF) && o.frame.N > 0:
		err = io.ErrUnexpectedEOF
	case errors.Is(err, io.EOF) && n > 0:
		err = nil
	}
	return n, err
}

// Close closes the output and unblocks Next and Read.
func (o *Output) Close() error { return o.close.Close() }

// maxTimestamp is the maximum length of a timestamp.
const maxTimestamp = 64

// SplitTimestamp splits a frame of Logs into the time at which the engine read it, and the data.
func SplitTimestamp(frame []byte) (at time.Time, data []byte, err error) {
	i := bytes.IndexByte(frame[:min(len(frame), maxTimestamp)], ' ')
	if i < 0 {
		return at, nil, errors.New("a line of the engine's log has no timestamp")
	}
	if at, err = time.Parse(time.RFC3339Nano, string(frame[:i])); err != nil {
		return at, nil, fmt.Errorf("a line of the engine's log has an invalid timestamp: %w", err)
	}
	return at, frame[i+1:], nil
}
