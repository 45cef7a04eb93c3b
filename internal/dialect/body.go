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
	bodyIdleTimeout = time.Minute     // without a byte of a body
	bodyReadTimeout = 5 * time.Minute // for one that is read as a whole
	bodyFreeSize    = 64 << 10        // bytes of a body for which there is always memory
	bodyBudget      = 256 << 20       // bytes of all larger ones that a gateway holds at a time
)

// bodyLimiter bounds the bodies of a gateway's requests.
type bodyLimiter struct {
	idleTimeout, readTimeout time.Duration
	budget                   atomic.Int64 // bytes that may still be held
}

func newBodyLimiter() *bodyLimiter {
	in := &bodyLimiter{idleTimeout: bodyIdleTimeout, readTimeout: bodyReadTimeout}
	in.budget.Store(bodyBudget)
	return in
}

// reserve reserves memory, if there is as much.
func (in *bodyLimiter) reserve(n int64) bool {
	if in.budget.Add(-n) >= 0 {
		return true
	}
	in.budget.Add(n)
	return false
}

// limitedBody is the body of one request. Each of its bytes may be waited for so long, and none after end.
type limitedBody struct {
	io.ReadCloser

	limiter    *bodyLimiter
	controller *http.ResponseController
	deadline   time.Time // zero for none
	reserved   int64     // bytes that are reserved for it
}

type limitedBodyKey struct{}

// limitBodies bounds how long the bodies of requests take, and what is held of them until their handlers return.
func (in *bodyLimiter) limitBodies(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength == 0 {
			next.ServeHTTP(w, r)
			return
		}
		body := &limitedBody{ReadCloser: r.Body, limiter: in, controller: http.NewResponseController(w)}
		defer func() { in.budget.Add(body.reserved) }()
		body.extendDeadline() // also for what the handler does not read, which the server does before it answers
		r = r.WithContext(context.WithValue(r.Context(), limitedBodyKey{}, body))
		r.Body = body
		next.ServeHTTP(w, r)
	})
}

// extendDeadline sets the deadline for the next bytes.
func (b *limitedBody) extendDeadline() {
	deadline := time.Now().Add(b.limiter.idleTimeout)
	if !b.deadline.IsZero() && b.deadline.Before(deadline) {
		deadline = b.deadline
	}
	_ = b.controller.SetReadDeadline(deadline) // a recorder in a test has none
}

// Read implements io.Reader. After the last byte the handler may take its time.
func (b *limitedBody) Read(p []byte) (int, error) {
	b.extendDeadline()
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		_ = b.controller.SetReadDeadline(time.Time{}) // the same
	}
	return n, err
}

// ReadBody reads the body of a request as a whole. Its errors are TooLarge for more than max bytes, Invalid for one that breaks off, and
// Unavailable while the bodies of other requests of the gateway take all the memory that is for them.
func ReadBody(r *http.Request, maxBytes int64) ([]byte, error) {
	body, limited := r.Context().Value(limitedBodyKey{}).(*limitedBody)
	if limited {
		body.deadline = time.Now().Add(body.limiter.readTimeout)
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
		size := min(2*int64(cap(b)), maxBytes+1)
		if limited && size > bodyFreeSize {
			if !body.limiter.reserve(size - body.reserved) {
				return nil, muster.Errorf(muster.Unavailable, "the server has no memory for the body now: send it again later")
			}
			body.reserved = size
		}
		b = append(make([]byte, 0, size), b...)
	}
}

// Decode reads a JSON value from the body of a request. Its errors are those of ReadBody, and Invalid for what is not the value.
func Decode(r *http.Request, maxBytes int64, dst any) error {
	b, err := ReadBody(r, maxBytes)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, dst); err != nil {
		if typeErr, ok := errors.AsType[*json.UnmarshalTypeError](err); ok { // its own text names types of this program
			jsonType, _, _ := strings.Cut(typeErr.Value, " ")
			return muster.Errorf(muster.Invalid, "%s is a JSON %s, which is not expected there", cmp.Or(typeErr.Field, "the body"), jsonType)
		}
		return muster.Errorf(muster.Invalid, "the body is not the JSON that is expected here: %w", err)
	}
	return nil
}
