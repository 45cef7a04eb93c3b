package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/handshake"
	"github.com/muster-dev/muster/internal/link"
)

const (
	// MinSkewShown is the difference of clocks that is shown: a quarter of what the server tolerates.
	MinSkewShown = time.Duration(handshake.MaxSkew) / 4

	renewPause   = 30 * time.Second // after a renewal that failed, while the token is valid
	refusalPause = 10 * time.Second // in which the server may refuse maxRefusals tokens
	maxRefusals  = 3
)

// Credentials are the session tokens of a worker: it requests them with its key, and renews one that is used after about half of its lifetime. A
// worker that has only the bearer key of an earlier version first gives the server a public key in place of it. The zero value is not usable.
type Credentials struct {
	server *url.URL
	client *http.Client
	dir    string // of the identity
	log    *slog.Logger
	lock   chan struct{} // has a token while something uses what follows

	id       Identity
	current  link.Credential
	renewAt  time.Time
	endsAt   time.Time
	refusals []time.Time   // of the last tokens
	skew     time.Duration // of this clock, as of the last answer; positive if it is ahead
	shown    bool          // the skew was logged
}

var _ link.Credentials = (*Credentials)(nil)

// NewCredentials returns the credentials of a worker, whose identity is in dir.
func NewCredentials(id Identity, server *url.URL, client *http.Client, dir string, log *slog.Logger) *Credentials {
	return &Credentials{server: server, client: client, dir: dir, log: log, id: id, lock: make(chan struct{}, 1)}
}

// Current implements link.Credentials. One request at a time is sent, for all callers.
func (c *Credentials) Current(ctx context.Context) (link.Credential, error) {
	select {
	case c.lock <- struct{}{}:
		defer func() { <-c.lock }()
	case <-ctx.Done():
		return link.Credential{}, ctx.Err()
	}
	now := time.Now()
	if now.Before(c.renewAt) {
		return c.current, nil
	}
	err := c.renew(ctx)
	if err != nil && now.Before(c.endsAt) {
		c.renewAt = now.Add(min(renewPause, c.endsAt.Sub(now)))
		c.log.Debug("cannot renew the session token yet", slog.Any("error", err))
		return c.current, nil
	}
	return c.current, err
}

// Refused implements link.Credentials: the server has restarted, or the token expired. Whether the server refuses the worker shows the answer to
// the request for another token.
func (c *Credentials) Refused(token string, err error) error {
	c.lock <- struct{}{}
	defer func() { <-c.lock }()
	if token != c.current.Token {
		return nil // another one is there already
	}
	now := time.Now()
	c.current, c.renewAt, c.endsAt = link.Credential{}, time.Time{}, time.Time{}
	if c.refusals = append(c.refusals, now); len(c.refusals) <= maxRefusals {
		return nil
	}
	c.refusals = c.refusals[1:]
	if now.Sub(c.refusals[0]) > refusalPause {
		return nil
	}
	return muster.Errorf(muster.Unavailable, "the server refuses session tokens that it has just issued: %w", err)
}

// Skew returns how far this clock is ahead of the server's, or behind if it is negative, as of the last answer.
func (c *Credentials) Skew() time.Duration {
	c.lock <- struct{}{}
	defer func() { <-c.lock }()
	return c.skew
}

// renew requests a token.
func (c *Credentials) renew(ctx context.Context) error {
	if c.id.Key != "" {
		if err := c.registerKey(ctx); err != nil {
			return err
		}
	}
	began := time.Now()
	r, ephemeral, err := handshake.NewRequest(c.id.privateKey(), c.id.Worker, c.id.ServerID, muster.NewTime(began))
	if err != nil {
		return err
	}
	var g handshake.SessionGrant
	if err := c.post(ctx, link.PathSession, "", r, &g); err != nil {
		return err
	}
	secret, err := r.Confirm(ephemeral, &g)
	if err != nil {
		return err
	}
	now := time.Now()
	life := g.ExpiresAt.Sub(g.At).Std()
	c.current = link.Credential{Token: g.Token, Secret: secret}
	c.endsAt = began.Add(life)
	c.renewAt = began.Add(life*2/5 + rand.N(max(life/5, 1))) //nolint:gosec // jitter is no secret: between 40% and 60%, so that a fleet that connects at once does not renew at once
	c.showSkew(began.Add(now.Sub(began) / 2).Sub(g.At.Std()))
	return nil
}

// showSkew logs once that the clocks differ.
func (c *Credentials) showSkew(skew time.Duration) {
	c.skew = skew
	if c.shown || skew.Abs() < MinSkewShown {
		return
	}
	c.shown = true
	c.log.Warn("this clock and the server's differ: beyond the maximum the server refuses this worker; synchronize both with NTP",
		slog.Duration("ahead", skew.Round(time.Millisecond)), slog.Duration("maximum", time.Duration(handshake.MaxSkew)))
}

// registerKey gives the server a public key in place of the bearer key, and saves the identity. After a crash at any time it may be repeated.
func (c *Credentials) registerKey(ctx context.Context) error {
	if !c.id.hasKeyPair() {
		c.id.PrivateKey = newSeed()
		if err := c.id.Save(c.dir); err != nil {
			return err
		}
	}
	key, now := c.id.privateKey(), muster.NewTime(time.Now())
	var joined link.Joined
	if err := c.post(ctx, link.PathKey, c.id.Key, link.KeyRequest{PublicKey: publicOf(key), At: now, Proof: handshake.ProveMove(key, auth.Hash(c.id.Key), now)}, &joined); err != nil {
		return err
	}
	if _, err := handshake.ParseServerID(joined.Server); err != nil {
		return err
	}
	c.id.Key, c.id.ServerID = "", joined.Server
	if err := c.id.Save(c.dir); err != nil {
		return err
	}
	c.log.Info("the server has the public key of this worker: its bearer key of an earlier version does not work any more")
	return nil
}

// post sends a request and reads the answer.
func (c *Credentials) post(ctx context.Context, path, token string, content, answer any) error {
	status, header, body, err := post(ctx, c.client, c.server, path, token, content)
	if err != nil {
		return err
	}
	if status != http.StatusOK {
		return link.ResponseError(&http.Response{StatusCode: status, Header: header, Body: io.NopCloser(bytes.NewReader(body))})
	}
	if err := json.Unmarshal(body, answer); err != nil {
		return muster.Errorf(muster.Unavailable, "the answer of %s to %s is not valid: %w", c.server, path, err)
	}
	return nil
}
