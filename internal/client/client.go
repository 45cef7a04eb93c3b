// Package client is the typed Go client of the HTTP API, for the command line
// and for tests.
//
// Errors are *muster.Error with the code of the server's answer. If the server is
// unreachable, the code is Unavailable and the message has its address. Calls that are safe
// to repeat are retried with growing pauses for Options.RetryTimeout: all calls that the
// server refused as "not done" or that never left this machine, and idempotent calls whose
// answer was lost. A server that says when to try again (Retry-After) is not asked earlier, and not at all if that is too late. Streams (Logs, Events) resume after a broken connection or a server
// restart, until no connection succeeds for Options.StreamRetryTimeout. A server that has never answered
// this client is retried only for Options.ConnectTimeout.
//
// Every call ends when its context ends. Each try of a call takes at most
// Options.Timeout; streams and transfers are only limited in how long they may stall.
package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/backoff"
	"github.com/muster-dev/muster/internal/origin"
)

// Options configure a Client. Zero values mean the defaults.
type Options struct {
	HTTP               *http.Client        // without a Timeout of its own; default: a new one with keep-alive
	CA                 string              // fingerprint of the server's certificate authority (origin.Options); default: that at the end of the token
	TLSServerName      string              // see origin.Options; default: the host of the URL
	ClientCert         string              // file with the certificate that the client presents; default: none
	ClientKey          string              // file with its key
	Timeout            time.Duration       // of one try of a call; default 30 s
	RetryTimeout       time.Duration       // of all tries of a call; default 5 s
	StreamRetryTimeout time.Duration       // of reconnecting a broken stream or transfer; default 10 min
	ConnectTimeout     time.Duration       // of all tries before the first answer of the server to this client; default RetryTimeout
	UserAgent          string              // User-Agent; default "muster"
	Hint               string              // ends the message of an unreachable server; default none
	OnSlow             func()              // called once, in its own goroutine, if the first answer takes longer than SlowAnswer; may be nil
	OnDelay            func(time.Duration) // called when the server asks to wait longer than a second; may be nil
}

// SlowAnswer is the time after which Options.OnSlow is called.
const SlowAnswer = 900 * time.Millisecond

// maxResponse is the maximum size of a JSON answer, in bytes.
const maxResponse = 256 << 20

// Client accesses one server. Its methods are safe for concurrent use.
type Client struct {
	base     *url.URL
	token    string
	opts     Options
	answered atomic.Bool // the server, or a proxy before it, has answered once
}

// New returns a client for the server at base, such as "http://127.0.0.1:8700". It
// does not connect. A fingerprint at the end of the token (auth.SplitToken) is not sent.
func New(base, token string, o Options) (*Client, error) {
	u, err := url.Parse(strings.TrimRight(base, "/"))
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, muster.Errorf(muster.Invalid, "%q is not a server address: write a URL such as http://127.0.0.1:8700", muster.HideCredentials(base))
	}
	token, pin := auth.SplitToken(token)
	if o.HTTP == nil {
		if o.HTTP, err = origin.NewClientFor(u, origin.Options{CA: o.CA, ServerName: o.TLSServerName, ClientCert: o.ClientCert, ClientKey: o.ClientKey, MaxIdleConnsPerHost: 16}, pin); err != nil {
			return nil, err
		}
	}
	o.HTTP = origin.Client(o.HTTP)
	o.Timeout = cmp.Or(max(o.Timeout, 0), 30*time.Second)
	o.RetryTimeout = cmp.Or(max(o.RetryTimeout, 0), 5*time.Second)
	o.StreamRetryTimeout = cmp.Or(max(o.StreamRetryTimeout, 0), 10*time.Minute)
	o.ConnectTimeout = cmp.Or(max(o.ConnectTimeout, 0), o.RetryTimeout)
	o.UserAgent = cmp.Or(o.UserAgent, "muster")
	if o.OnSlow != nil {
		o.OnSlow = sync.OnceFunc(o.OnSlow)
	}
	return &Client{base: u, token: token, opts: o}, nil
}

// URL returns the server's address.
func (c *Client) URL() string { return c.base.String() }

// call is one request with a JSON answer.
type call struct {
	method     string
	path       string // below wire.Prefix
	query      url.Values
	header     http.Header
	body       any  // as JSON; nil for none
	idempotent bool // safe to send again if its answer was lost
	out        any  // filled from JSON; nil to ignore
}

// do performs a call, and repeats it if that is safe.
func (c *Client) do(ctx context.Context, k call) error {
	header := http.Header{}
	maps.Copy(header, k.header)
	var body []byte
	if k.body != nil {
		var err error
		if body, err = json.Marshal(k.body); err != nil {
			return muster.Errorf(muster.Invalid, "cannot encode the request as JSON: %w", err)
		}
		header.Set("Content-Type", "application/json")
	}
	try := func() error {
		ctx, cancel := context.WithTimeout(ctx, c.opts.Timeout)
		defer cancel()
		resp, err := c.send(ctx, k.method, k.path, k.query, header, bytes.NewReader(body))
		if err != nil {
			return err
		}
		defer func() { _ = resp.Body.Close() }()
		if k.out == nil {
			return nil
		}
		data, err := io.ReadAll(io.LimitReader(resp.Body, maxResponse))
		if err != nil {
			return c.unreachableError(ctx, err)
		}
		if err := json.Unmarshal(data, k.out); err != nil {
			return muster.Errorf(muster.Internal, "cannot decode the answer of %s to %s %s: %w", c.base, k.method, k.path, err)
		}
		return nil
	}
	for r := c.newRetrier(c.opts.RetryTimeout); ; {
		if err := try(); err == nil || !retryable(err, k.idempotent) || !r.wait(ctx, err) {
			return err
		}
	}
}

// send performs one HTTP request. An answer other than 2xx is an error. The caller closes the body.
func (c *Client) send(ctx context.Context, method, path string, query url.Values, header http.Header, body io.Reader) (*http.Response, error) {
	req, err := c.newRequest(ctx, method, path, query, header, body)
	if err != nil {
		return nil, err
	}
	resp, err := c.roundTrip(req)
	if err != nil {
		return nil, c.unreachableError(ctx, err)
	}
	if resp.StatusCode/100 != 2 {
		defer func() { _ = resp.Body.Close() }()
		return nil, c.responseError(resp)
	}
	return resp, nil
}

// roundTrip sends a request and notes whether the server has answered.
func (c *Client) roundTrip(req *http.Request) (*http.Response, error) {
	if c.opts.OnSlow != nil && !c.answered.Load() {
		defer time.AfterFunc(SlowAnswer, c.opts.OnSlow).Stop()
	}
	resp, err := c.opts.HTTP.Do(req)
	if err == nil {
		c.answered.Store(true)
	}
	return resp, err
}

func (c *Client) newRequest(ctx context.Context, method, path string, query url.Values, header http.Header, body io.Reader) (*http.Request, error) {
	target := c.base.String() + wire.Prefix + path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, target, body)
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	maps.Copy(req.Header, header)
	req.Header.Set("User-Agent", c.opts.UserAgent)
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	return req, nil
}

// unreachableError returns the error for a request without an answer.
func (c *Client) unreachableError(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err // without its own copy of the URL
	}
	if _, ok := errors.AsType[*origin.CertificateError](err); ok {
		return muster.Errorf(muster.Unavailable, "cannot connect to the server at %s: %w", c.base, err)
	}
	return muster.Errorf(muster.Unavailable,
		"cannot reach the server at %s: %w; check that it is running and that the address is right (--server or MUSTER_SERVER)%s", c.base, err, c.opts.Hint)
}

// codes has the error codes of answers without a problem document.
var codes = map[int]muster.Code{
	http.StatusUnauthorized: muster.Unauthenticated, http.StatusForbidden: muster.Forbidden,
	http.StatusNotFound: muster.NotFound, http.StatusConflict: muster.Conflict, http.StatusPreconditionFailed: muster.Conflict,
	http.StatusRequestEntityTooLarge: muster.TooLarge, http.StatusBadGateway: muster.Undetermined,
	http.StatusServiceUnavailable: muster.Unavailable, http.StatusGatewayTimeout: muster.Undetermined,
	http.StatusTooManyRequests: muster.Unavailable, http.StatusInsufficientStorage: muster.StorageFull,
}

// responseError returns the error for an answer other than 2xx.
func (c *Client) responseError(resp *http.Response) error {
	body, err := io.ReadAll(io.LimitReader(resp.Body, 4<<20))
	var p wire.Problem
	if err == nil && json.Unmarshal(body, &p) == nil && p.Code != "" {
		return &muster.Error{Code: p.Code, Message: p.Detail, Fields: p.Errors, Err: backoff.Delayed(resp.Header)}
	}
	failure := muster.Errorf(cmp.Or(codes[resp.StatusCode], muster.Internal), "%s answered %s without a reason: check that a Muster server runs at that address",
		c.base, resp.Status)
	failure.Err = backoff.Delayed(resp.Header)
	return failure
}

// retrier spaces out tries until a deadline.
type retrier struct {
	backoff.Backoff
	client   *Client
	connect  time.Time // the deadline while the server has never answered
	deadline time.Time
}

func (c *Client) newRetrier(timeout time.Duration) *retrier {
	now := time.Now()
	return &retrier{Backoff: backoff.Backoff{Max: 5 * time.Second}, client: c, connect: now.Add(c.opts.ConnectTimeout), deadline: now.Add(timeout)}
}

// progressed starts over after a try that made progress.
func (r *retrier) progressed(timeout time.Duration) {
	r.Reset()
	r.deadline = time.Now().Add(timeout)
}

// wait waits before the next try, after one that failed with err, as long as the server says. It returns false if there must be none.
func (r *retrier) wait(ctx context.Context, err error) bool {
	pause, named, now := r.NextAfter(err), backoff.DelayOf(err), time.Now()
	switch {
	case !r.client.answered.Load() && now.Add(pause).After(r.connect), named > 0 && now.Add(pause).After(r.deadline), !now.Before(r.deadline):
		return false
	case named > time.Second && r.client.opts.OnDelay != nil:
		r.client.opts.OnDelay(named)
	}
	return backoff.Sleep(ctx, pause) == nil
}

// retryable reports whether a failed call may be sent again.
func retryable(err error, idempotent bool) bool {
	switch muster.CodeOf(err) {
	case muster.Undetermined: // the server, or a proxy before it, does not know whether it was done
		return idempotent
	case muster.Unavailable:
	default:
		return false
	}
	if backoff.DelayOf(err) > 0 {
		return true // the server has not processed it
	}
	cause := errors.Unwrap(err)
	if _, ok := errors.AsType[*origin.CertificateError](err); ok {
		return false
	}
	if cause == nil || idempotent {
		return true // the server itself answered "not done", or a repetition is harmless
	}
	op, ok := errors.AsType[*net.OpError](cause)
	return ok && op.Op == "dial"
}
