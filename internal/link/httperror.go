package link

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/muster-dev/muster"
)

// HTTPStatus is the status with which a transport refuses a session for err.
func HTTPStatus(err error) int {
	switch muster.CodeOf(err) {
	case muster.Unauthenticated:
		return http.StatusUnauthorized
	case muster.Forbidden:
		return http.StatusForbidden
	case muster.Unavailable, muster.StorageFull, muster.Undetermined:
		return http.StatusServiceUnavailable
	case muster.Invalid, muster.InvalidSpec:
		return http.StatusBadRequest
	case muster.NotFound:
		return http.StatusNotFound
	case muster.Conflict:
		return http.StatusConflict
	case muster.TooLarge:
		return http.StatusRequestEntityTooLarge
	case muster.Internal:
	}
	return http.StatusInternalServerError
}

// problem is the body of an answer that refuses, the part of a problem+json that says who speaks and why.
type problem struct {
	Status int         `json:"status"`
	Detail string      `json:"detail"`
	Code   muster.Code `json:"code"`
}

// WriteError answers an HTTP request that does not become a session.
func WriteError(w http.ResponseWriter, err error) {
	r := problem{Status: HTTPStatus(err), Detail: err.Error(), Code: muster.CodeOf(err)}
	if r.Code == muster.Unauthenticated {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(r.Status)
	_ = json.NewEncoder(w).Encode(r) // a caller who left does not read it
}

// maxProblem is how much of a refusal is read, in bytes.
const maxProblem = 4 << 10

// errBusy is in the chain of refusals that say that the server cannot take any session now.
var errBusy = errors.New("busy")

// ResponseError makes the error of an HTTP answer that is no success, and reads its body. Unavailable means
// that the same request may do better later. Unauthenticated and Forbidden are the server's own word:
// a proxy on the way that answers 401 or 403 to what it does not let through knows nothing of keys.
func ResponseError(resp *http.Response) error {
	b, _ := io.ReadAll(io.LimitReader(resp.Body, maxProblem)) // as much as there is
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
	if resp.StatusCode == http.StatusServiceUnavailable {
		err.Err = errBusy
	}
	return err
}
