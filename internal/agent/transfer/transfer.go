// Package transfer moves blobs between a worker and its server over the HTTP API, with the worker's key: it fetches inputs and project
// folders, and uploads artifacts.
//
// Bytes are streamed, not buffered in memory, and verified against their SHA-256. An interrupted transfer resumes where it stopped. It
// fails after ten minutes without progress; that failure does not count against the task. Fetched blobs stay in a cache on disk,
// within a budget, so that the tasks of an array fetch their inputs once. Config.Rate limits all transfers together.
//
// A file is copied from the cache, not linked, because a task may write to its inputs. File systems with reflinks (btrfs, xfs) copy
// without using time or space.
package transfer

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"golang.org/x/time/rate"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/backoff"
	"github.com/muster-dev/muster/internal/link"
	"github.com/muster-dev/muster/internal/origin"
)

// Config configures a Client.
type Config struct {
	Server      *url.URL
	Credentials link.Credentials // of the worker
	HTTP        *http.Client     // without a timeout: large files take long
	Dir         string           // of the cache
	Budget      muster.Size      // of the cache; 0 means DefaultBudget
	Rate        muster.Size      // limit of all transfers together, in bytes per second; 0 means none
	Log         *slog.Logger

	OnTransfer    func(in bool, n int) // called after n bytes were received or sent; must not block; may be nil
	OnCacheLookup func(hit bool)       // called for each blob that a task needs; must not block; may be nil
}

// DefaultBudget is the default size of the cache in bytes.
const DefaultBudget = 10 << 30

const (
	maxConcurrent = 4                // transfers
	retryTimeout  = 10 * time.Minute // without progress, after which a transfer fails
	stallTimeout  = time.Minute      // without progress, after which a connection is closed
)

// Client transfers blobs. Its methods may be called concurrently.
type Client struct {
	cfg      Config
	cache    *cache
	slots    chan struct{}
	throttle *throttle
}

// New returns a client and creates its cache folder.
func New(cfg Config) (*Client, error) {
	c, err := openCache(cfg.Dir, int64(cmp.Or(cfg.Budget, DefaultBudget)))
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

// WithCredentials returns a client with those of another worker. It shares everything else with c.
func (c *Client) WithCredentials(cred link.Credentials) *Client {
	other := *c
	other.cfg.Credentials = cred
	return &other
}

// Cache returns the used size and the budget of the cache in bytes.
func (c *Client) Cache() (used, budget int64) {
	c.cache.mu.Lock()
	defer c.cache.mu.Unlock()
	return c.cache.total, c.cache.budget
}

func (c *Client) slot(ctx context.Context) (release func(), err error) {
	select {
	case c.slots <- struct{}{}:
		return func() { <-c.slots }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// request returns a request for a blob, or for a path below it.
func (c *Client) request(ctx context.Context, method, sha string, below ...string) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.cfg.Server.JoinPath(append([]string{"/api/v1/blobs", sha}, below...)...).String(), nil)
	if err != nil {
		return nil, permanentError{err}
	}
	cred, err := c.cfg.Credentials.Current(ctx)
	if code := muster.CodeOf(err); code == muster.Unauthenticated || code == muster.Forbidden {
		return nil, permanentError{err}
	}
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+cred.Token)
	return req, nil
}

// do sends a request. A redirect to another server is a permanent error.
func (c *Client) do(req *http.Request) (*http.Response, error) {
	resp, err := c.cfg.HTTP.Do(req)
	if redirect, ok := errors.AsType[*origin.RedirectError](err); ok {
		return nil, permanentError{redirect}
	}
	return resp, err
}

// permanentError is an error that is not retried.
type permanentError struct{ error }

func (e permanentError) Unwrap() error { return e.error }

// retry calls try until it succeeds, returns a permanentError, or makes no progress for retryTimeout. try returns how many bytes it
// transferred.
func (c *Client) retry(ctx context.Context, desc string, try func(context.Context) (int64, error)) error {
	var pause backoff.Backoff
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
			pause.Reset()
			lastProgress = time.Now()
		}
		wait := pause.NextAfter(err)
		if time.Since(lastProgress)+wait > retryTimeout {
			return muster.Errorf(muster.Unavailable, "%s failed for %s: %w", desc, retryTimeout, err)
		}
		c.cfg.Log.Debug("transfer failed, retrying", slog.String("what", desc), slog.Any("error", err), slog.Duration("pause", wait))
		if backoff.Sleep(ctx, wait) != nil {
			return context.Cause(ctx)
		}
	}
}

// statusError returns the error of a response without success. A refused token is replaced for the next try.
func (c *Client) statusError(resp *http.Response) error {
	err := &muster.Error{Code: muster.Unavailable, Message: "the server returned " + resp.Status, Err: backoff.Delayed(resp.Header)}
	if code := resp.StatusCode; code >= http.StatusInternalServerError || code == http.StatusTooManyRequests || code == http.StatusRequestTimeout {
		return err
	}
	if resp.StatusCode == http.StatusUnauthorized {
		if refused := c.cfg.Credentials.Refused(auth.Bearer(resp.Request.Header.Get("Authorization")), permanentError{err}); refused != nil {
			return refused
		}
		return err
	}
	return permanentError{err}
}

// throttle limits the rate of all transfers together. Nil means no limit.
type throttle struct {
	limit *rate.Limiter
	chunk int // the most bytes in one wait
}

const (
	maxChunk = 128 << 10
	minChunk = 512
)

func newThrottle(perSecond muster.Size) *throttle {
	if perSecond <= 0 {
		return nil
	}
	// Chunks of a quarter of a second keep the flow even, and a slow transfer does not look stalled.
	chunk := int(min(max(perSecond/4, minChunk), maxChunk))
	return &throttle{rate.NewLimiter(rate.Limit(perSecond), chunk), chunk}
}

// clip shortens p to one chunk.
func (t *throttle) clip(p []byte) []byte {
	if t == nil {
		return p
	}
	return p[:min(len(p), t.chunk)]
}

// wait waits until n more bytes, at most one chunk, may be transferred.
func (t *throttle) wait(ctx context.Context, n int) error {
	if t == nil || n == 0 {
		return nil
	}
	return t.limit.WaitN(ctx, n)
}
