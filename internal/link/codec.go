package link

import (
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"

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
	return encode(&c.sent, f)
}

// Decode decodes the next frame from the server. Anything but the next valid frame of
// this protocol is an Invalid or TooLarge error that names the field.
func (c *WorkerCodec) Decode(b []byte) (*ToWorker, error) {
	return decode[ToWorker](&c.received, b)
}

// Encode sets f.Seq and returns the frame as JSON, like WorkerCodec.Encode.
func (c *ServerCodec) Encode(f *ToWorker) ([]byte, error) {
	f.Seq = c.sent + 1
	return encode(&c.sent, f)
}

// Decode decodes the next frame from the worker, like WorkerCodec.Decode. It decodes only Version, Worker,
// Name and Build of a Hello in another protocol version, so that the server can refuse it with both versions.
func (c *ServerCodec) Decode(b []byte) (*ToServer, error) {
	if c.received == 0 {
		if h := otherVersion(b); h != nil {
			c.received++
			return &ToServer{Seq: 1, Hello: h}, nil
		}
	}
	return decode[ToServer](&c.received, b)
}

// frame is a ToServer or a ToWorker.
type frame interface {
	number() uint64
	last() bool
	check() error // refuses what the types alone do not exclude, and names the first bad field
}

func (f *ToServer) number() uint64 { return f.Seq }
func (f *ToWorker) number() uint64 { return f.Seq }
func (f *ToServer) last() bool     { return f.Goodbye != nil }
func (f *ToWorker) last() bool     { return f.Goodbye != nil }

// The tags of fields have the meaning that encoding/json gives them. Results, inputs and own kinds are any JSON that
// encoding/json accepts, and keep their bytes; therefore names may repeat.
var (
	encodeOptions = json.JoinOptions(jsonv1.OmitEmptyWithLegacySemantics(true), json.FormatNilSliceAsNull(true), json.FormatNilMapAsNull(true),
		json.Deterministic(true), jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true), jsontext.PreserveRawStrings(true))
	decodeOptions = json.JoinOptions(json.RejectUnknownMembers(true), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)) // escapes of half characters; frames are UTF-8
)

// encode encodes a frame and counts it unless it is refused.
func encode(sent *uint64, f frame) ([]byte, error) {
	if err := f.check(); err != nil {
		return nil, frameError(f.number(), err)
	}
	b, err := json.Marshal(f, encodeOptions)
	if err != nil {
		return nil, frameError(f.number(), asFieldError(err))
	}
	if err := checkFrameSize(f.number(), b); err != nil {
		return nil, err
	}
	*sent++
	return b, nil
}

// decode decodes the next frame, which must fill b, and counts it unless it is refused.
func decode[F any, P interface {
	*F
	frame
}](received *uint64, b []byte) (P, error) {
	want := *received + 1
	if err := checkFrameSize(want, b); err != nil {
		return nil, err
	}
	if !utf8.Valid(b) {
		return nil, frameError(want, fieldErrorf("is not UTF-8"))
	}
	f := P(new(F))
	if err := json.Unmarshal(b, f, decodeOptions); err != nil {
		return nil, frameError(want, asFieldError(err))
	}
	if n := f.number(); n != want {
		return nil, frameError(want, inField("seq", fieldErrorf("is %d, want %d: frames were lost or repeated", n, want)))
	}
	if err := f.check(); err != nil {
		return nil, frameError(want, err)
	}
	*received++
	return f, nil
}

// frameError refuses a frame because of err.
func frameError(seq uint64, err error) error {
	return muster.Errorf(muster.Invalid, "frame %d: %w", seq, err)
}

// checkFrameSize refuses a frame that is too long.
func checkFrameSize(seq uint64, b []byte) error {
	if len(b) > MaxFrame {
		return muster.Errorf(muster.TooLarge, "frame %d has %d bytes: the most is %d", seq, len(b), MaxFrame)
	}
	return nil
}

// otherVersion returns the Hello of a first frame if it has
// another protocol version, and nil otherwise.
func otherVersion(b []byte) *Hello {
	var f struct {
		Hello *struct {
			Version int             `json:"version"`
			Worker  muster.WorkerID `json:"worker"`
			Name    string          `json:"name"`
			Build   string          `json:"build"`
		} `json:"hello"`
	}
	if len(b) > MaxFrame || json.Unmarshal(b, &f, jsontext.AllowDuplicateNames(true)) != nil || f.Hello == nil || f.Hello.Version == Version {
		return nil
	}
	return &Hello{Version: f.Hello.Version, Worker: f.Hello.Worker, Name: f.Hello.Name, Build: f.Hello.Build}
}
