package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/wire"
)

// unreachableError makes the error for a request without an answer.
func (c *Client) unreachableError(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err // without its own copy of the URL
	}
	return muster.Errorf(muster.Unavailable,
		"cannot reach the server at %s: %w; check that it is running and that the address is right (--server or MUSTER_SERVER)", c.base, err)
}

// responseError makes the error for an answer other than 2xx.
func (c *Client) responseError(resp *http.Response) error {
	body, err := io.ReadAll(io.LimitReader(resp.Body, 4<<20))
	var p wire.Problem
	if err == nil && json.Unmarshal(body, &p) == nil && p.Code != "" {
		return &muster.Error{Code: p.Code, Message: p.Detail, Fields: p.Errors}
	}
	code := map[int]muster.Code{
		http.StatusUnauthorized: muster.Unauthenticated, http.StatusForbidden: muster.Forbidden,
		http.StatusNotFound: muster.NotFound, http.StatusConflict: muster.Conflict, http.StatusPreconditionFailed: muster.Conflict,
		http.StatusRequestEntityTooLarge: muster.TooLarge, http.StatusBadGateway: muster.Undetermined,
		http.StatusServiceUnavailable: muster.Unavailable, http.StatusGatewayTimeout: muster.Undetermined,
		http.StatusTooManyRequests: muster.Unavailable, http.StatusInsufficientStorage: muster.StorageFull,
	}[resp.StatusCode]
	if code == "" {
		code = muster.Internal
	}
	return muster.Errorf(code, "%s answered %s without saying why: check that a Muster server runs at that address",
		c.base, resp.Status)
}

// retry calls try until it succeeds, fails for good, or patience has passed.
// repeat says that try may be called again after its answer was lost.
func retry(ctx context.Context, timeout time.Duration, idempotent bool, try func() error) error {
	deadline := time.Now().Add(timeout)
	for b := (backoff{}); ; {
		err := try()
		if err == nil || !retryable(err, idempotent) || !time.Now().Before(deadline) {
			return err
		}
		if b.wait(ctx) != nil {
			return err
		}
	}
}

// retryable says whether a failed call may be sent once more.
func retryable(err error, idempotent bool) bool {
	switch muster.CodeOf(err) {
	case muster.Undetermined: // the server, or a proxy before it, does not know whether it was done
		return idempotent
	case muster.Unavailable:
	default:
		return false
	}
	cause := errors.Unwrap(err)
	if cause == nil || idempotent {
		return true // the server itself said "not done", or it does no harm
	}
	op, ok := errors.AsType[*net.OpError](cause)
	return ok && op.Op == "dial"
}
