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
	b, err := appendToServer(make([]byte, 0, 256+192*f.messages()), f)
	if err == nil {
		err = checkToServer(f)
	}
	if err := checkFrame(f.Seq, b, err); err != nil {
		return nil, err
	}
	c.sent++
	return b, nil
}

// Decode decodes the next frame from the server. Anything but the next valid frame of
// this protocol is an Invalid or TooLarge error that names the field.
func (c *WorkerCodec) Decode(b []byte) (*ToWorker, error) {
	f := new(ToWorker)
	err := decodeFrame(b, func(s *scanner) error { return s.toWorker(f) })
	if err == nil {
		err = checkSeq(f.Seq, c.received)
	}
	if err == nil {
		err = checkToWorker(f)
	}
	if err := checkFrame(c.received+1, b, err); err != nil {
		return nil, err
	}
	c.received++
	return f, nil
}

// Encode sets f.Seq and returns the frame as JSON, like WorkerCodec.Encode.
func (c *ServerCodec) Encode(f *ToWorker) ([]byte, error) {
	f.Seq = c.sent + 1
	b, err := appendToWorker(make([]byte, 0, 256+128*f.messages()), f)
	if err == nil {
		err = checkToWorker(f)
	}
	if err := checkFrame(f.Seq, b, err); err != nil {
		return nil, err
	}
	c.sent++
	return b, nil
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
	err := decodeFrame(b, func(s *scanner) error { return s.toServer(f) })
	if err == nil {
		err = checkSeq(f.Seq, c.received)
	}
	if err == nil {
		err = checkToServer(f)
	}
	if err := checkFrame(c.received+1, b, err); err != nil {
		return nil, err
	}
	c.received++
	return f, nil
}

// decodeFrame reads one frame, which must fill b.
func decodeFrame(b []byte, read func(*scanner) error) error {
	if len(b) > MaxFrame {
		return nil // checkFrame returns the error
	}
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

func checkSeq(seq, received uint64) error {
	if seq != received+1 {
		return inField("seq", fieldErrorf("is %d, want %d: frames were lost or repeated", seq, received+1))
	}
	return nil
}
