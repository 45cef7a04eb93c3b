package dialect

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/muster-dev/muster"
)

const (
	bodyIdle  = time.Minute     // without a byte of a body
	bodyWhole = 5 * time.Minute // for one that is read as a whole
	bodyFree  = 64 << 10        // bytes of a body for which there is always memory
	bodyMost  = 256 << 20       // bytes of all larger ones that a gateway holds at a time
)

// intake bounds the bodies of a gateway's requests.
type intake struct {
	idle, whole time.Duration
	free        atomic.Int64 // bytes that may still be held
}

func newIntake() *intake {
	in := &intake{idle: bodyIdle, whole: bodyWhole}
	in.free.Store(bodyMost)
	return in
}

// take reserves memory, if there is as much.
func (in *intake) take(n int64) bool {
	if in.free.Add(-n) >= 0 {
		return true
	}
	in.free.Add(n)
	return false
}

// incoming is the body of one request. Each of its bytes may be waited for so long, and none after end.
type incoming struct {
	io.ReadCloser

	intake  *intake
	control *http.ResponseController
	end     time.Time // zero for none
	held    int64     // bytes that are reserved for it
}

type incomingKey struct{}

// receive bounds how long the bodies of requests take, and what is held of them until their handlers return.
func (in *intake) receive(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength == 0 {
			next.ServeHTTP(w, r)
			return
		}
		body := &incoming{ReadCloser: r.Body, intake: in, control: http.NewResponseController(w)}
		defer func() { in.free.Add(body.held) }()
		body.wait() // also for what the handler does not read, which the server does before it answers
		r = r.WithContext(context.WithValue(r.Context(), incomingKey{}, body))
		r.Body = body
		next.ServeHTTP(w, r)
	})
}

// wait sets the deadline for the next bytes.
func (b *incoming) wait() {
	at := time.Now().Add(b.intake.idle)
	if !b.end.IsZero() && b.end.Before(at) {
		at = b.end
	}
	_ = b.control.SetReadDeadline(at) // a recorder in a test has none
}

// Read implements io.Reader. After the last byte the handler may take its time.
func (b *incoming) Read(p []byte) (int, error) {
	b.wait()
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		_ = b.control.SetReadDeadline(time.Time{}) // the same
	}
	return n, err
}

// ReadBody reads the body of a request as a whole. Its errors are TooLarge for more than max bytes, Invalid for one that breaks off, and
// Unavailable while the bodies of other requests of the gateway take all the memory that is for them.
func ReadBody(r *http.Request, maxBytes int64) ([]byte, error) {
	body, bounded := r.Context().Value(incomingKey{}).(*incoming)
	if bounded {
		body.end = time.Now().Add(body.intake.whole)
	}
	b := make([]byte, 0, min(512, maxBytes+1))
	for {
		n, err := r.Body.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		switch {
		case int64(len(b)) > maxBytes:
			return nil, muster.Errorf(muster.TooLarge, "the body has more than %d bytes", maxBytes)
		case errors.Is(err, io.EOF):
			return b, nil
		case err != nil:
			return nil, muster.Errorf(muster.Invalid, "the body broke off: %w", err)
		case len(b) < cap(b):
			continue
		}
		more := min(2*int64(cap(b)), maxBytes+1)
		if bounded && more > bodyFree {
			if !body.intake.take(more - body.held) {
				return nil, muster.Errorf(muster.Unavailable, "the server has no memory for the body now: send it again later")
			}
			body.held = more
		}
		b = append(make([]byte, 0, more), b...)
	}
}

// Decode reads a JSON value from the body of a request. Its errors are those of ReadBody, and Invalid for what is not the value.
func Decode(r *http.Request, maxBytes int64, into any) error {
	b, err := ReadBody(r, maxBytes)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, into); err != nil {
		if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok { // its own text names types of this program
			value, _, _ := strings.Cut(wrong.Value, " ")
			return muster.Errorf(muster.Invalid, "%s is a JSON %s, which is not expected there", cmp.Or(wrong.Field, "the body"), value)
		}
		return muster.Errorf(muster.Invalid, "the body is not the JSON that is expected here: %w", err)
	}
	return nil
}
