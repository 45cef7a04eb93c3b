package link

import (
	"unicode/utf8"

	"github.com/muster-dev/muster"
)

// WorkerCodec turns a session's frames to bytes and back on the worker's side,
// and numbers them. Encode and Decode may be called at the same time, each by
// one goroutine. The zero value is at the start of a session.
type WorkerCodec struct{ sent, received uint64 }

// ServerCodec is the server's side, like WorkerCodec.
type ServerCodec struct{ sent, received uint64 }

// Encode sets f.Seq and returns the frame as JSON without newlines. What the
// server would refuse is an Invalid or TooLarge error that names the field, and
// does not count as sent.
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

// Decode reads the next frame from the server. What is not exactly a frame of
// this protocol, in its turn, is an Invalid or TooLarge error that names the field.
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

// Decode reads the next frame from the worker, like WorkerCodec.Decode. Of a
// Hello in another protocol version only Version, Worker, Name and Build are read, so that it
// can be refused in clear words.
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
		return nil // checkFrame says so
	}
	if !utf8.Valid(b) {
		return fieldErrorf("is not UTF-8")
	}
	s := &scanner{b: b}
	if err := read(s); err != nil {
		return err
	}
	if s.skipSpace(); s.i < len(b) {
		return fieldErrorf("goes on after its end, at byte %d", s.i)
	}
	return nil
}

// checkFrame makes the error of a frame from what is wrong in it.
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
		return inField("seq", fieldErrorf("is %d, but %d comes next: frames were lost or repeated", seq, received+1))
	}
	return nil
}
