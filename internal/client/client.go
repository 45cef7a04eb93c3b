package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/origin"
)

// Options tune a Client. Zero values mean the defaults.
type Options struct {
	HTTP               *http.Client  // without a Timeout of its own; default: a new one with keep-alive
	Timeout            time.Duration // of one try of a call; default 30 s
	RetryTimeout       time.Duration // how long calls that are safe to repeat are repeated; default 5 s
	StreamRetryTimeout time.Duration // how long a broken stream or transfer tries to go on; default 10 min
	UserAgent          string        // User-Agent; default "muster"
}

// maxResponse is the most bytes of an answer that is read into memory.
const maxResponse = 256 << 20

// Client talks to one server. Its methods may be called at the same time.
type Client struct {
	base  *url.URL
	token string
	opts  Options
}

// New makes a client for the server at base, such as "http://127.0.0.1:8700". It
// does not connect.
func New(base, token string, o Options) (*Client, error) {
	u, err := url.Parse(strings.TrimRight(base, "/"))
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, muster.Errorf(muster.Invalid, "%q is not a server's address: write a URL such as http://127.0.0.1:8700", base)
	}
	if o.HTTP == nil {
		o.HTTP = &http.Client{Transport: transport()}
	}
	o.HTTP = origin.Client(o.HTTP)
	o.Timeout = orDefault(o.Timeout, 30*time.Second)
	o.RetryTimeout = orDefault(o.RetryTimeout, 5*time.Second)
	o.StreamRetryTimeout = orDefault(o.StreamRetryTimeout, 10*time.Minute)
	if o.UserAgent == "" {
		o.UserAgent = "muster"
	}
	return &Client{base: u, token: token, opts: o}, nil
}

func transport() *http.Transport {
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		MaxIdleConnsPerHost:   16,
		IdleConnTimeout:       90 * time.Second,
		TLSHandshakeTimeout:   10 * time.Second,
		ResponseHeaderTimeout: time.Minute,
		ExpectContinueTimeout: 5 * time.Second,
		ForceAttemptHTTP2:     true,
	}
}

func orDefault(d, def time.Duration) time.Duration {
	if d > 0 {
		return d
	}
	return def
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
	idempotent bool // it does no harm to send it again when its answer was lost
	out        any  // filled from JSON; nil to ignore
}

// do performs a call, and repeats it where that is safe.
func (c *Client) do(ctx context.Context, k call) error {
	var body []byte
	if k.body != nil {
		var err error
		if body, err = json.Marshal(k.body); err != nil {
			return muster.Errorf(muster.Invalid, "the request cannot be written as JSON: %w", err)
		}
	}
	return retry(ctx, c.opts.RetryTimeout, k.idempotent, func() error {
		ctx, cancel := context.WithTimeout(ctx, c.opts.Timeout)
		defer cancel()
		header := k.header.Clone()
		if body != nil {
			if header == nil {
				header = http.Header{}
			}
			header.Set("Content-Type", "application/json")
		}
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
			return muster.Errorf(muster.Internal, "the answer of %s to %s %s is not understood: %w", c.base, k.method, k.path, err)
		}
		return nil
	})
}

// send performs one HTTP request. An answer other than 2xx is an error. The caller closes the body.
func (c *Client) send(ctx context.Context, method, path string, query url.Values, header http.Header, body io.Reader) (*http.Response, error) {
	target := c.base.String() + wire.Prefix + path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, target, body)
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	maps.Copy(req.Header, header)
	c.setHeaders(req)
	resp, err := c.opts.HTTP.Do(req)
	if err != nil {
		return nil, c.unreachableError(ctx, err)
	}
	if resp.StatusCode/100 != 2 {
		defer func() { _ = resp.Body.Close() }()
		return nil, c.responseError(resp)
	}
	return resp, nil
}

// setHeaders says who asks.
func (c *Client) setHeaders(req *http.Request) {
	req.Header.Set("User-Agent", c.opts.UserAgent)
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
}
