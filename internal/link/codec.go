package link

import (
	"unicode/utf8"

	"github.com/muster-dev/muster"
)

// WorkerCodec encodes and decodes a session's frames on the worker's side,
// and numbers them. Encode and Decode may be called at the same time, each by
// one goroutine. The zero value is at the start of a session.
type WorkerCodec struct{ sent, received uint64 }

// ServerCodec is the server's side, like WorkerCodec.
type ServerCodec struct{ sent, received uint64 }

// Encode sets f.Seq and returns the frame as JSON without newlines. It refuses what
// the server would refuse with an Invalid or TooLarge error that names the field. A refused
// frame gets no number.
func (c *WorkerCodec) Encode(f *ToServer) ([]byte, error) {
	f.Seq = c.sent + 1
	return encodeFrame(&c.sent, f, 256+192*f.messages(), appendToServer, checkToServer)
}

// Decode decodes the next frame from the server. Anything but the next valid frame of
// this protocol is an Invalid or TooLarge error that names the field.
func (c *WorkerCodec) Decode(b []byte) (*ToWorker, error) {
	f := new(ToWorker)
	if err := decodeFrame(&c.received, b, func(s *scanner) error { return s.toWorker(f) }, &f.Seq, func() error { return checkToWorker(f) }); err != nil {
		return nil, err
	}
	return f, nil
}

// Encode sets f.Seq and returns the frame as JSON, like WorkerCodec.Encode.
func (c *ServerCodec) Encode(f *ToWorker) ([]byte, error) {
	f.Seq = c.sent + 1
	return encodeFrame(&c.sent, f, 256+128*f.messages(), appendToWorker, checkToWorker)
}

// Decode decodes the next frame from the worker, like WorkerCodec.Decode. It decodes only Version, Worker,
// Name and Build of a Hello in another protocol version, so that the server can refuse it with both versions.
func (c *ServerCodec) Decode(b []byte) (*ToServer, error) {
	f := new(ToServer)
	if c.received == 0 {
		if h := otherVersion(b); h != nil {
			c.received++
			return &ToServer{Seq: 1, Hello: h}, nil
		}
	}
	if err := decodeFrame(&c.received, b, func(s *scanner) error { return s.toServer(f) }, &f.Seq, func() error { return checkToServer(f) }); err != nil {
		return nil, err
	}
	return f, nil
}

// encodeFrame encodes a frame and counts it unless it is refused. size is an estimate of its bytes.
func encodeFrame[F any](sent *uint64, f *F, size int, appendTo func([]byte, *F) ([]byte, error), check func(*F) error) ([]byte, error) {
	b, err := appendTo(make([]byte, 0, size), f)
	if err == nil {
		err = check(f)
	}
	if err := checkFrame(*sent+1, b, err); err != nil {
		return nil, err
	}
	*sent++
	return b, nil
}

// decodeFrame decodes the next frame, which must fill b, and counts it unless it is refused.
func decodeFrame(received *uint64, b []byte, read func(*scanner) error, seq *uint64, check func() error) error {
	if len(b) > MaxFrame {
		return checkFrame(*received+1, b, nil)
	}
	err := scanFrame(b, read)
	if err == nil && *seq != *received+1 {
		err = inField("seq", fieldErrorf("is %d, want %d: frames were lost or repeated", *seq, *received+1))
	}
	if err == nil {
		err = check()
	}
	if err := checkFrame(*received+1, b, err); err != nil {
		return err
	}
	*received++
	return nil
}

// scanFrame reads one frame, which must fill b.
func scanFrame(b []byte, read func(*scanner) error) error {
	if !utf8.Valid(b) {
		return fieldErrorf("is not UTF-8")
	}
	s := &scanner{b: b}
	if err := read(s); err != nil {
		return err
	}
	if s.skipSpace(); s.i < len(b) {
		return fieldErrorf("has data after its end, at byte %d", s.i)
	}
	return nil
}

// checkFrame returns the error of a frame that is too long or that failed with err.
func checkFrame(seq uint64, b []byte, err error) error {
	if err != nil {
		return muster.Errorf(muster.Invalid, "frame %d: %w", seq, err)
	}
	if len(b) > MaxFrame {
		return muster.Errorf(muster.TooLarge, "frame %d has %d bytes: the most is %d", seq, len(b), MaxFrame)
	}
	return nil
}
