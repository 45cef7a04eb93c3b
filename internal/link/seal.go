package link

import (
	"bytes"
	"context"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"net/http"
	"strconv"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/bootclock"
)

// HeaderNonce is the HTTP header by which each side names its nonce for a sealed connection: the worker in the request that opens it, the server in
// the response.
const HeaderNonce = "Muster-Link-Nonce"

// SealTolerance is how much later, or earlier, than the first frame of its direction a frame may arrive. Time includes what the machines sleep.
const SealTolerance = 5 * time.Minute

// maxFirstSleep is how long a machine may sleep before it reads the first frame, whose lateness then would count for all others.
const maxFirstSleep = SealTolerance / 2

// A sealed frame is "1 ID SEQUENCE TIME SIGNATURE FRAME". The fields have fixed lengths; the signature is over all others.
const (
	sealVersion   = "1 "
	sealIDSize    = 8                              // bytes of an id, which is in hex, as the numbers are
	sealSigned    = 2 + 3*17                       // bytes before the signature: the version, and three numbers with a space each
	sealSignature = 43                             // of the signature, as base64
	sealOverhead  = sealSigned + sealSignature + 1 // bytes before the frame

	maxNonce  = 64                   // bytes of a nonce
	sealLabel = "muster link seal 1" // of the derived keys
	upward    = "to server"          // the direction of a worker's frames
	downward  = "to worker"          // of a server's
)

// MaxSealed is the most bytes of a sealed frame: the limit of a transport.
const MaxSealed = MaxFrame + sealOverhead

// Why a sealed connection rejects a frame.
const (
	Unsealed  = "unsealed"  // it has no signature
	Altered   = "altered"   // the signature is not that of its bytes, or a part is missing
	Foreign   = "foreign"   // it is of another connection or direction
	Replayed  = "replayed"  // its number was used before
	Reordered = "reordered" // frames before it are missing
	Late      = "late"      // it arrived outside SealTolerance
)

// RejectReasons lists all reasons of FrameError.
func RejectReasons() []string { return []string{Unsealed, Altered, Foreign, Replayed, Reordered, Late} }

// FrameError is in the chain of the Unavailable error of a FrameConn that has rejected a frame.
type FrameError struct {
	Reason  string // of RejectReasons
	message string
}

// Error implements error.
func (r *FrameError) Error() string { return r.message }

// errSuspended is in the chain of the Unavailable error of a FrameConn whose machine slept while a frame waited to be read, for longer than SealTolerance.
// Nothing indicates an attack, so there is no FrameError.
var errSuspended = errors.New("the machine was suspended")

func reject(reason, format string, args ...any) error {
	return muster.Errorf(muster.Unavailable, "a frame was rejected as %s: %w", reason, &FrameError{reason, fmt.Sprintf(format, args...)})
}

// Seal makes one connection sealed: each frame carries a signature, which is an HMAC-SHA256 with a key of this connection and direction, its
// number and its time. Keys are derived from the secret that worker and server have in common and from a nonce of each side, so no frame of
// one connection is valid in another. A nil Seal leaves connections as they are.
type Seal struct {
	secret         []byte
	purpose        string
	worker, server string // nonces
}

// OfferSeal returns the worker's side of a new connection, with the id of an Exec or "" for a session. It is nil without a secret.
func OfferSeal(secret []byte, execID string) *Seal {
	if secret == nil {
		return nil
	}
	return &Seal{secret: secret, purpose: execID, worker: rand.Text()}
}

// AcceptSeal returns the server's side of a connection that r opens. It is nil without a secret. A worker that has none, or whose nonce was lost,
// cannot make a frame that this side accepts.
func AcceptSeal(r *http.Request, secret []byte) *Seal {
	if secret == nil {
		return nil
	}
	nonce := r.Header.Get(HeaderNonce)
	return &Seal{secret: secret, purpose: r.URL.Query().Get("id"), worker: nonce[:min(len(nonce), maxNonce)], server: rand.Text()}
}

// SetNonce adds the nonce of this side to the header of its request or response.
func (s *Seal) SetNonce(h http.Header) {
	switch {
	case s == nil:
	case s.server != "":
		h.Set(HeaderNonce, s.server)
	default:
		h.Set(HeaderNonce, s.worker)
	}
}

// Worker returns the worker's side of the sealed connection, after the response of the server. A response without a nonce is Unavailable: a worker
// that has a secret uses no connection without signatures.
func (s *Seal) Worker(conn FrameConn, response http.Header) (FrameConn, error) {
	if s == nil {
		return conn, nil
	}
	s.server = response.Get(HeaderNonce)
	if s.server == "" || len(s.server) > maxNonce {
		return nil, muster.Errorf(muster.Unavailable,
			"the server's response has no valid %s, so its frames would not be signed: a proxy may have removed it, or this is another server", HeaderNonce)
	}
	return s.sealed(conn, upward, downward), nil
}

// Server returns the server's side of the sealed connection.
func (s *Seal) Server(conn FrameConn) FrameConn {
	if s == nil {
		return conn
	}
	return s.sealed(conn, downward, upward)
}

func (s *Seal) sealed(conn FrameConn, out, in string) FrameConn {
	now := time.Now()
	return &sealedConn{FrameConn: conn, elapsed: elapsedSince(now, bootclock.Now()), clock: now.UnixMilli(), out: s.half(out), in: s.half(in)}
}

// elapsedSince returns what measures for how long the machine has been awake, and asleep, since began, when the boot clock was boot.
func elapsedSince(began time.Time, boot time.Duration) func() (awake, asleep time.Duration) {
	return func() (awake, asleep time.Duration) {
		awake = time.Since(began)
		return awake, max(0, bootclock.Now()-boot-awake)
	}
}

// half derives the key and the id of one direction.
func (s *Seal) half(direction string) sealHalf {
	salt := []byte(s.worker + " " + s.server)
	key, err := hkdf.Key(sha256.New, s.secret, salt, sealLabel+"\n"+direction+"\n"+s.purpose, sha256.Size+sealIDSize)
	if err != nil {
		panic("link: " + err.Error()) // only for longer keys
	}
	return sealHalf{
		mac:    hmac.New(sha256.New, key[:sha256.Size]),
		prefix: append(hex.AppendEncode([]byte(sealVersion), key[sha256.Size:]), ' '),
	}
}

// sealedConn seals the frames of a connection and opens those of the other side.
type sealedConn struct {
	FrameConn

	elapsed func() (awake, asleep time.Duration) // since the connection began
	clock   int64                                // Unix milliseconds then
	out, in sealHalf
	offset  int64         // milliseconds by which the other side's first frame came later than its time
	slept   time.Duration // how long the machine had slept when the last frame was read
	failed  error         // of Read
}

// sealHalf is one direction of a sealed connection. One goroutine uses it.
type sealHalf struct {
	mac    hash.Hash
	prefix []byte // version and id, with their spaces
	frames uint64 // sealed or opened
	sum    [sha256.Size]byte
	text   [sealSignature]byte
}

// sign returns the signature of the first bytes of a sealed frame and of the frame. It is valid until the next call.
func (h *sealHalf) sign(head, frame []byte) []byte {
	h.mac.Reset()
	h.mac.Write(head)
	h.mac.Write(frame)
	base64.RawURLEncoding.Encode(h.text[:], h.mac.Sum(h.sum[:0]))
	return h.text[:]
}

// now returns the time in Unix milliseconds, and how long the machine has slept since the connection began, which the time includes. Steps of the
// system's clock do not change them within a connection.
func (c *sealedConn) now() (unixMilli int64, slept time.Duration) {
	awake, asleep := c.elapsed()
	return c.clock + (awake + asleep).Milliseconds(), asleep
}

// Write implements FrameConn.
func (c *sealedConn) Write(ctx context.Context, frame []byte, last bool) error {
	c.out.frames++
	now, _ := c.now()
	b := make([]byte, 0, sealOverhead+len(frame))
	b = append(b, c.out.prefix...)
	b = appendNumber(b, c.out.frames)
	b = appendNumber(b, uint64(now))
	b = append(b, c.out.sign(b, frame)...)
	b = append(b, ' ')
	return c.FrameConn.Write(ctx, append(b, frame...), last)
}

// Read implements FrameConn. After it has rejected a frame, it returns the same error.
func (c *sealedConn) Read(ctx context.Context) ([]byte, error) {
	if c.failed != nil {
		return nil, c.failed
	}
	b, err := c.FrameConn.Read(ctx)
	if err != nil {
		return nil, err
	}
	frame, err := c.open(b)
	c.failed = err
	return frame, err
}

// open returns the frame of a sealed frame.
func (c *sealedConn) open(b []byte) ([]byte, error) {
	switch {
	case !bytes.HasPrefix(b, []byte(sealVersion)):
		return nil, reject(Unsealed, "it has no signature")
	case len(b) < sealOverhead:
		return nil, reject(Altered, "it has %d bytes: a signed frame has at least %d", len(b), sealOverhead)
	case !bytes.HasPrefix(b, c.in.prefix):
		return nil, reject(Foreign, "it is of another connection, or of the other direction")
	}
	head, signature, frame := b[:sealSigned], b[sealSigned:sealOverhead-1], b[sealOverhead:]
	if !hmac.Equal(c.in.sign(head, frame), signature) || b[sealOverhead-1] != ' ' {
		return nil, reject(Altered, "its signature does not match its %d bytes", len(b))
	}
	head = head[len(c.in.prefix):]
	seq, at := parseNumber(head), int64(parseNumber(head[len(head)/2:]))
	want := c.in.frames + 1
	now, asleep := c.now()
	slept := asleep - c.slept // while the frame may have waited
	if c.in.frames == 0 {
		c.offset = now - at
	}
	late := time.Duration(now-at-c.offset) * time.Millisecond
	switch {
	case seq < want:
		return nil, reject(Replayed, "it has number %d, and the next one is %d", seq, want)
	case seq > want:
		return nil, reject(Reordered, "it has number %d, and the next one is %d", seq, want)
	case late > SealTolerance && late-slept <= SealTolerance, c.in.frames == 0 && slept > maxFirstSleep:
		return nil, muster.Errorf(muster.Unavailable, "%w for %s while a frame waited, which is too old now: both sides connect again", errSuspended, slept.Round(time.Second))
	case late.Abs() > SealTolerance:
		return nil, reject(Late, "it comes %s later than the connection's first frame did by its time: the most is %s", late, SealTolerance)
	}
	c.in.frames++
	c.slept = asleep
	return frame, nil
}

// appendNumber appends n as 16 hexadecimal digits and a space.
func appendNumber(b []byte, n uint64) []byte {
	const digits = "0123456789abcdef"
	for shift := 60; shift >= 0; shift -= 4 {
		b = append(b, digits[n>>shift&15])
	}
	return append(b, ' ')
}

// parseNumber parses what appendNumber appended at the beginning of b.
func parseNumber(b []byte) uint64 {
	n, _ := strconv.ParseUint(string(b[:16]), 16, 64) // the other side signed it
	return n
}
