// Package transfer moves blobs between a worker and its server, with the worker's
// own key, over the HTTP API: inputs and project folders down, artifacts up.
//
// Bytes are streamed and never held whole in memory. What arrives is checked
// against its SHA-256. A transfer that breaks goes on where it stopped, and is
// tried again until nothing has moved for ten minutes; then it fails by the
// fleet's fault. What was fetched stays in a cache on disk, within a budget, so
// that the tasks of an array fetch their inputs once. All transfers together keep to
// Config.Rate.
//
// A file is copied out of the cache, not linked: a task may write to its inputs,
// and must not change those of others. On file systems that share blocks between
// copies (btrfs, xfs) that costs neither time nor space.
package transfer

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/origin"
)

// Config is what a Client is made of.
type Config struct {
	Server *url.URL
	Key    string       // the worker's own
	HTTP   *http.Client // without a timeout of its own: big files take their time
	Dir    string       // the cache
	Budget muster.Size  // bytes that the cache may hold; 0 means DefaultBudget
	Rate   muster.Size  // bytes a second that all transfers together keep to; 0 means no cap
	Log    *slog.Logger

	// OnTransfer is told of bytes that came in or went out, and Cached of each blob that a task needs, whether the cache has it. Both
	// return at once. Nil means that nobody counts.
	OnTransfer    func(in bool, n int)
	OnCacheLookup func(hit bool)
}

// DefaultBudget is the size of the cache if Config names none.
const DefaultBudget = 10 << 30

const (
	maxConcurrent = 4                // transfers that move bytes at the same time
	retryTimeout  = 10 * time.Minute // without a byte moved, then a transfer fails
	stallTimeout  = time.Minute      // without a byte moved, then a connection is given up
)

// Client moves blobs. Its methods may be called at the same time.
type Client struct {
	cfg      Config
	cache    *cache
	slots    chan struct{}
	throttle *throttle
}

var _ run.Transfer = (*Client)(nil)

// New makes a client and its cache folder.
func New(cfg Config) (*Client, error) {
	if cfg.Budget == 0 {
		cfg.Budget = DefaultBudget
	}
	c, err := openCache(cfg.Dir, int64(cfg.Budget))
	if err != nil {
		return nil, err
	}
	cfg.HTTP = origin.Client(cfg.HTTP)
	if cfg.OnTransfer == nil {
		cfg.OnTransfer = func(bool, int) {}
	}
	if cfg.OnCacheLookup == nil {
		cfg.OnCacheLookup = func(bool) {}
	}
	return &Client{cfg: cfg, cache: c, slots: make(chan struct{}, maxConcurrent), throttle: newThrottle(cfg.Rate)}, nil
}

// WithKey returns a client with another worker's key, which shares the cache, the rate and all else of c.
func (c *Client) WithKey(key string) *Client {
	other := *c
	other.cfg.Key = key
	return &other
}

// Cache returns how many bytes the cache has, and may have.
func (c *Client) Cache() (used, budget int64) {
	c.cache.mu.Lock()
	defer c.cache.mu.Unlock()
	return c.cache.total, c.cache.budget
}

// slot waits for leave to move bytes; the returned func gives it back.
func (c *Client) slot(ctx context.Context) (release func(), err error) {
	select {
	case c.slots <- struct{}{}:
		return func() { <-c.slots }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (c *Client) url(sha string) string { return c.cfg.Server.JoinPath("/api/v1/blobs", sha).String() }

func (c *Client) request(ctx context.Context, method, sha string) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.url(sha), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+c.cfg.Key)
	return req, nil
}

// do sends a request. That the server redirects to another one is final.
func (c *Client) do(req *http.Request) (*http.Response, error) {
	resp, err := c.cfg.HTTP.Do(req)
	if redirect, ok := errors.AsType[*origin.RedirectError](err); ok {
		return nil, permanentError{redirect}
	}
	return resp, err
}

// permanentError is a failure that trying again does not mend.
type permanentError struct{ error }

func (e permanentError) Unwrap() error { return e.error }

// retry calls try until it succeeds, fails for good, or has moved nothing for as
// long as patience. try returns how many bytes it moved.
func (c *Client) retry(ctx context.Context, desc string, try func(context.Context) (int64, error)) error {
	pause := minBackoff
	lastProgress := time.Now()
	for {
		moved, err := try(ctx)
		if err == nil {
			return nil
		}
		if final, ok := errors.AsType[permanentError](err); ok {
			return final.error
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if moved > 0 {
			pause, lastProgress = minBackoff, time.Now()
		}
		if time.Since(lastProgress)+pause > retryTimeout {
			return muster.Errorf(muster.Unavailable, "%s failed for %s: %w", desc, retryTimeout, err)
		}
		c.cfg.Log.Debug("a transfer broke; going on", slog.String("what", desc), slog.Any("error", err), slog.Duration("pause", pause))
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return context.Cause(ctx)
		}
		pause = min(2*pause, maxBackoff)
	}
}

const (
	minBackoff = 100 * time.Millisecond
	maxBackoff = 15 * time.Second
)

// statusError is the error of an HTTP status that is not the wanted one.
func statusError(resp *http.Response) error {
	err := muster.Errorf(muster.Unavailable, "the server answered %s", resp.Status)
	switch code := resp.StatusCode; {
	case code >= http.StatusInternalServerError, code == http.StatusTooManyRequests, code == http.StatusRequestTimeout:
		return err
	default:
		return permanentError{err}
	}
}
