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
	bodyIdleTimeout = time.Minute     // without a byte of the body
	bodyReadTimeout = 5 * time.Minute // for a body that is read as a whole
	bodyFreeSize    = 64 << 10        // bytes of a body that do not count against the budget
	bodyBudget      = 256 << 20       // bytes of all larger bodies of a gateway
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

// limitedBody is the body of one request. A read waits for idleTimeout at most, and not beyond deadline.
type limitedBody struct {
	io.ReadCloser

	limiter    *bodyLimiter
	controller *http.ResponseController
	deadline   time.Time // zero for none
	reserved   int64     // bytes of the budget
}

type limitedBodyKey struct{}

// limitBodies bounds the time for request bodies, and their memory until the handlers return.
func (in *bodyLimiter) limitBodies(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength == 0 {
			next.ServeHTTP(w, r)
			return
		}
		body := &limitedBody{ReadCloser: r.Body, limiter: in, controller: http.NewResponseController(w)}
		defer func() { in.budget.Add(body.reserved) }()
		body.extendDeadline() // the server itself reads what the handler does not
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

// Read implements io.Reader. There is no deadline after the last byte.
func (b *limitedBody) Read(p []byte) (int, error) {
	b.extendDeadline()
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		_ = b.controller.SetReadDeadline(time.Time{}) // see extendDeadline
	}
	return n, err
}

// ReadBody reads the body of a request as a whole. Its errors are TooLarge for more than maxBytes bytes, Invalid for one that breaks off,
// and Unavailable while the bodies of other requests use all of the gateway's memory for bodies.
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
			return nil, muster.Errorf(muster.TooLarge, "the request body exceeds %d bytes", maxBytes)
		case errors.Is(err, io.EOF):
			return b, nil
		case err != nil:
			return nil, muster.Errorf(muster.Invalid, "cannot read the request body: %w", err)
		case len(b) < cap(b):
			continue
		}
		size := min(2*int64(cap(b)), maxBytes+1)
		if limited && size > bodyFreeSize {
			if more := size - body.reserved; body.limiter.budget.Add(-more) < 0 {
				body.limiter.budget.Add(more)
				return nil, muster.Errorf(muster.Unavailable, "the server has no memory for the request body: try again later")
			}
			body.reserved = size
		}
		b = append(make([]byte, 0, size), b...)
	}
}

// Decode reads the body of a request as JSON into dst. Its errors are those of ReadBody, and Invalid for a body that does not fit.
func Decode(r *http.Request, maxBytes int64, dst any) error {
	b, err := ReadBody(r, maxBytes)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, dst); err != nil {
		if typeErr, ok := errors.AsType[*json.UnmarshalTypeError](err); ok { // its own text names types of this program
			jsonType, _, _ := strings.Cut(typeErr.Value, " ")
			return muster.Errorf(muster.Invalid, "%s has the wrong type: JSON %s", cmp.Or(typeErr.Field, "the request body"), jsonType)
		}
		return muster.Errorf(muster.Invalid, "the request body is not valid JSON: %w", err)
	}
	return nil
}
