package polllink

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/backoff"
	"github.com/muster-dev/muster/internal/link"
)

const (
	openTimeout    = 15 * time.Second
	requestTimeout = pollTimeout + 15*time.Second
	closeTimeout   = 2 * time.Second
	retryTimeout   = 45 * time.Second // of failing requests, before the server ends the session itself
)

// Dialer opens sessions over HTTP polls.
type Dialer struct {
	Server      string // base URL, such as "https://muster.example:7777"
	Credentials link.Credentials
	HTTP        *http.Client // its Timeout must be 0 or over 30 s; nil means http.DefaultClient
}

// Dial implements link.Dialer.
func (d *Dialer) Dial(ctx context.Context) (link.WorkerConn, error) {
	conn, err := d.dial(ctx, link.PathPoll, "", "")
	if err != nil {
		return nil, err
	}
	return link.NewWorkerConn(conn), nil
}

// DialExec implements link.ExecDialer.
func (d *Dialer) DialExec(ctx context.Context, id string) (link.FrameConn, error) {
	return d.dial(ctx, link.PathExecPoll, "&id="+url.QueryEscape(id), id)
}

// dial opens a connection, with the id of an Exec or "" for a session. Later requests of the connection may use another credential.
func (d *Dialer) dial(ctx context.Context, path, query, execID string) (link.FrameConn, error) {
	client := d.HTTP
	if client == nil {
		client = http.DefaultClient
	}
	c := &workerConn{
		client: client, credentials: d.Credentials,
		url: strings.TrimSuffix(d.Server, "/") + path + "?session=" + rand.Text() + query + "&op=",
	}
	c.closed, c.markClosed = context.WithCancel(context.WithoutCancel(ctx))
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	conn, err := c.open(ctx, execID)
	if err != nil {
		return nil, link.DialError(d.Server, err)
	}
	return conn, nil
}

// workerConn is the worker's side of one session.
type workerConn struct {
	client      *http.Client
	url         string
	credentials link.Credentials

	sent     uint64   // the last sent frame
	buffered [][]byte // received frames that Read has not returned
	after    uint64   // the last received frame

	closing    sync.Once
	closed     context.Context //nolint:containedctx // canceled by Close
	markClosed context.CancelFunc
}

// Write returns when the server's session has the frame. It retries failed requests.
func (c *workerConn) Write(ctx context.Context, b []byte, _ bool) error {
	c.sent++
	return c.retry(ctx, func(ctx context.Context) error {
		_, err := c.post(ctx, fmt.Sprintf("send&seq=%d", c.sent), b, nil)
		return err
	})
}

// Read returns the next frame. It polls when the buffer is empty.
func (c *workerConn) Read(ctx context.Context) ([]byte, error) {
	for len(c.buffered) == 0 {
		err := c.retry(ctx, func(ctx context.Context) error {
			n, err := c.post(ctx, fmt.Sprintf("recv&after=%d", c.after), nil, &c.buffered)
			c.after += uint64(n)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	b := c.buffered[0]
	c.buffered = c.buffered[1:]
	return b, nil
}

// Close cancels running requests and notifies the server, if that takes less than closeTimeout.
func (c *workerConn) Close() error {
	c.closing.Do(func() {
		c.markClosed()
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		_, _ = c.post(ctx, "close", nil, nil) // otherwise the session times out
	})
	return nil
}

// retry repeats a request while its error is Unavailable, for at most retryTimeout.
func (c *workerConn) retry(ctx context.Context, request func(context.Context) error) error {
	var pause backoff.Backoff
	since := time.Now()
	for {
		err := c.once(ctx, request)
		switch {
		case c.closed.Err() != nil:
			return muster.Errorf(muster.Unavailable, "the connection is closed")
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case muster.CodeOf(err) != muster.Unavailable || time.Since(since) > retryTimeout:
			return err
		}
		wait := pause.NextAfter(err)
		if time.Since(since)+wait > retryTimeout {
			return err
		}
		if err := c.once(ctx, func(ctx context.Context) error { return backoff.Sleep(ctx, wait) }); err != nil && ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// once makes one request, which Close cancels.
func (c *workerConn) once(ctx context.Context, request func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	defer context.AfterFunc(c.closed, cancel)() //nolint:contextcheck // c.closed ends with the connection
	return request(ctx)
}

// open opens the session.
func (c *workerConn) open(ctx context.Context, execID string) (conn link.FrameConn, err error) {
	err = c.authorized(ctx, func(cred link.Credential) error {
		seal := link.OfferSeal(cred.Secret, execID)
		resp, err := c.request(ctx, cred.Token, "open", seal, nil)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		conn, err = seal.Worker(c, resp.Header)
		return err
	})
	return conn, err
}

// post makes one request and appends the lines of the response to lines: all of them or none.
func (c *workerConn) post(ctx context.Context, op string, body []byte, lines *[][]byte) (n int, err error) {
	err = c.authorized(ctx, func(cred link.Credential) error {
		resp, err := c.request(ctx, cred.Token, op, nil, body)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if lines != nil {
			n, err = readLines(resp.Body, lines)
		}
		return err
	})
	return n, err
}

// authorized makes a request with the current credential.
func (c *workerConn) authorized(ctx context.Context, request func(link.Credential) error) error {
	for {
		cred, err := c.credentials.Current(ctx)
		if err != nil {
			return err
		}
		err = request(cred)
		if muster.CodeOf(err) != muster.Unauthenticated {
			return err
		}
		if err = c.credentials.Refused(cred.Token, err); err != nil {
			return err
		}
	}
}

// request makes one request and returns the response of a successful one.
func (c *workerConn) request(ctx context.Context, token, op string, seal *link.Seal, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+op, bytes.NewReader(body))
	if err != nil {
		return nil, muster.Errorf(muster.Invalid, "invalid server address: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	seal.SetNonce(req.Header)
	resp, err := c.client.Do(req)
	if err != nil {
		return nil, muster.Errorf(muster.Unavailable, "cannot reach the server: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		return nil, link.ResponseError(resp)
	}
	return resp, nil
}

// readLines reads frames. A partial frame at the end means that the response was cut off: then it appends no lines.
func readLines(r io.Reader, lines *[][]byte) (int, error) {
	br := bufio.NewReader(io.LimitReader(r, 2*link.MaxFrame))
	var got [][]byte
	for {
		b, err := br.ReadBytes('\n')
		if err == nil {
			got = append(got, b[:len(b)-1])
			continue
		}
		if !errors.Is(err, io.EOF) || len(b) > 0 {
			return 0, muster.Errorf(muster.Unavailable, "the response was cut off: %w", err)
		}
		*lines = append(*lines, got...)
		return len(got), nil
	}
}
