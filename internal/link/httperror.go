package link

import (
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/backoff"
)

// statuses are those with which a transport refuses a session.
var statuses = map[muster.Code]int{
	muster.Unauthenticated: http.StatusUnauthorized, muster.Forbidden: http.StatusForbidden,
	muster.Unavailable: http.StatusServiceUnavailable, muster.StorageFull: http.StatusServiceUnavailable, muster.Undetermined: http.StatusServiceUnavailable,
	muster.Invalid: http.StatusBadRequest, muster.InvalidSpec: http.StatusBadRequest, muster.TooLarge: http.StatusRequestEntityTooLarge,
	muster.NotFound: http.StatusNotFound, muster.Conflict: http.StatusConflict,
}

// problem is the part of a problem+json body that transports use.
type problem struct {
	Status int         `json:"status"`
	Detail string      `json:"detail"`
	Code   muster.Code `json:"code"`
}

// WriteError refuses an HTTP request for a session with err.
func WriteError(w http.ResponseWriter, err error) {
	code := muster.CodeOf(err)
	r := problem{Status: cmp.Or(statuses[code], http.StatusInternalServerError), Detail: err.Error(), Code: code}
	if r.Code == muster.Unauthenticated {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(r.Status)
	_ = json.NewEncoder(w).Encode(r) // the client may have disconnected
}

// maxProblem is how much of a refusal is read, in bytes.
const maxProblem = 4 << 10

// errBusy is in the chain of refusals of a server that accepts no sessions now.
var errBusy = errors.New("busy")

// ResponseError returns the error for an HTTP response without success, and reads its body. Unavailable means
// that the same request may succeed later, after the delay of a backoff.DelayError if there is one in its chain. Unauthenticated and Forbidden come only from the server itself:
// a 401 or 403 of a proxy in between is Invalid.
func ResponseError(resp *http.Response) error {
	b, _ := io.ReadAll(io.LimitReader(resp.Body, maxProblem)) // a part is useful, too
	text := strings.TrimSpace(string(b))
	var reply problem
	if json.Unmarshal(b, &reply) == nil && reply.Code != "" && reply.Detail != "" {
		text = reply.Detail
	}
	code := muster.Unavailable
	switch resp.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		code = muster.Invalid
		if reply.Code == muster.Unauthenticated || reply.Code == muster.Forbidden {
			code = reply.Code
		}
	case http.StatusNotFound, http.StatusGone:
		code = muster.NotFound
	case http.StatusConflict:
		code = muster.Conflict
	case http.StatusRequestEntityTooLarge:
		code = muster.TooLarge
	case http.StatusRequestTimeout, http.StatusTooManyRequests:
	default:
		if resp.StatusCode < http.StatusInternalServerError {
			code = muster.Invalid
		}
	}
	if text == "" {
		text = http.StatusText(resp.StatusCode)
	}
	err := muster.Errorf(code, "the server answered %d: %s", resp.StatusCode, text)
	if code == muster.Unavailable {
		err.Err = backoff.Delayed(resp.Header)
	}
	if resp.StatusCode == http.StatusServiceUnavailable || resp.StatusCode == http.StatusTooManyRequests {
		err.Err = errors.Join(errBusy, err.Err)
	}
	return err
}
