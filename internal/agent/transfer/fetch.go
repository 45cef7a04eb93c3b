package transfer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
)

// Fetch implements process.Transfer. Its errors are run.TaskErrors. A blob of unknown size has at most maxUnknown bytes.
func (c *Client) Fetch(ctx context.Context, sha string, size int64, path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644) //nolint:gosec // a task's input, in the task's folder
	if err != nil {
		return run.Failf(muster.FetchFailed, "create an input's file: %w", err)
	}
	err = errors.Join(c.fetchInto(ctx, sha, size, f), f.Close())
	if err != nil {
		return errors.Join(fetchFailed(sha, err), os.Remove(path))
	}
	return nil
}

func fetchFailed(sha string, err error) error {
	return run.Failf(muster.FetchFailed, "fetch blob %s: %w", short(sha), err)
}

func short(sha string) string { return sha[:min(12, len(sha))] }

// maxUnknown is the most bytes of a blob whose size is not known, which is standard input. A server could send one without end.
const maxUnknown = muster.MaxStdin

// fetchInto writes a blob to the empty file dst, through the cache unless it is too large. A negative size is unknown.
func (c *Client) fetchInto(ctx context.Context, sha string, size int64, dst *os.File) error {
	if !muster.IsSHA256(sha) {
		return fmt.Errorf("%q is not a SHA-256", sha)
	}
	if size > c.cache.maxBlobSize() {
		return c.download(ctx, sha, size, unlimited, dst)
	}
	maxSize := int64(unlimited) // but size
	if size < 0 {
		maxSize = maxUnknown
	}
	src, err := c.openCached(ctx, sha, size, maxSize)
	if err != nil {
		return err
	}
	defer src.Close()
	_, err = io.Copy(dst, src)
	return err
}

// unlimited is the maxSize of a blob without a limit.
const unlimited = -1

// openCached opens a blob in the cache and fetches it if necessary. It fails for a blob that is larger than maxSize.
func (c *Client) openCached(ctx context.Context, sha string, size, maxSize int64) (*os.File, error) {
	unlock, err := c.cache.lock(ctx, sha)
	if err != nil {
		return nil, err
	}
	defer unlock()
	f := c.cache.open(sha, size)
	c.cfg.OnCacheLookup(f != nil)
	if f != nil {
		return f, nil
	}
	partial, err := c.cache.partial(sha)
	if err != nil {
		return nil, err
	}
	defer partial.Close()
	if err := c.download(ctx, sha, size, maxSize, partial); err != nil {
		return nil, err
	}
	return c.cache.add(sha, partial)
}

// maxMismatches is the number of downloads with a wrong hash after which a fetch fails.
const maxMismatches = 3

// download completes the blob in f, after the bytes that f already has.
func (c *Client) download(ctx context.Context, sha string, size, maxSize int64, f *os.File) error {
	release, err := c.slot(ctx)
	if err != nil {
		return err
	}
	defer release()
	d := &download{client: c, sha: sha, size: size, maxSize: maxSize, f: f}
	if err := d.rehash(); err != nil {
		return err
	}
	mismatches := 0
	return c.retry(ctx, "fetching "+short(sha), func(ctx context.Context) (int64, error) {
		before := d.received
		if err := d.fetchRest(ctx); err != nil {
			return d.received - before, err
		}
		got := hex.EncodeToString(d.sum.Sum(nil))
		if got == sha {
			return 0, nil
		}
		c.reportCorrupt(ctx, sha)
		if mismatches++; mismatches >= maxMismatches {
			return 0, permanentError{fmt.Errorf("the server sent wrong bytes with hash %s", short(got))}
		}
		if err := d.restart(); err != nil {
			return 0, permanentError{err}
		}
		return 0, fmt.Errorf("the bytes have hash %s", short(got))
	})
}

// reportCorrupt reports to the server that it sent wrong bytes: the server checks its file, and accepts a new upload if that is damaged.
func (c *Client) reportCorrupt(ctx context.Context, sha string) {
	ctx, cancel := context.WithTimeout(ctx, retryTimeout)
	defer cancel()
	req, err := c.request(ctx, http.MethodPost, sha, "check")
	if err == nil {
		var resp *http.Response
		if resp, err = c.cfg.HTTP.Do(req); err == nil {
			_ = resp.Body.Close()
			c.cfg.Log.Warn("reported a corrupt blob to the server", slog.String("sha256", sha), slog.String("answer", resp.Status))
			return
		}
	}
	c.cfg.Log.Warn("reporting a corrupt blob to the server failed", slog.String("sha256", sha), slog.Any("error", err))
}

type download struct {
	client   *Client
	sha      string
	size     int64 // negative if unknown
	maxSize  int64 // limit in bytes; negative: none
	f        *os.File
	sum      hash.Hash // of the first received bytes of f
	received int64
}

// rehash hashes the bytes that an earlier try has left in the file.
func (d *download) rehash() error {
	d.sum = sha256.New()
	n, err := io.Copy(d.sum, d.f)
	if err != nil {
		return err
	}
	if d.received = n; d.size >= 0 && d.received > d.size {
		return d.restart()
	}
	return nil
}

func (d *download) restart() error {
	d.sum.Reset()
	d.received = 0
	if err := d.f.Truncate(0); err != nil {
		return err
	}
	_, err := d.f.Seek(0, io.SeekStart)
	return err
}

// fetchRest requests the missing bytes and appends them. It returns nil when the blob is complete.
func (d *download) fetchRest(ctx context.Context) error {
	if d.received == d.size {
		return nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stallTimer := time.AfterFunc(stallTimeout, func() { cancel(fmt.Errorf("no data received for %s", stallTimeout)) })
	defer stallTimer.Stop()
	req, err := d.client.request(ctx, http.MethodGet, d.sha)
	if err != nil {
		return err
	}
	if d.received > 0 {
		req.Header.Set("Range", "bytes="+strconv.FormatInt(d.received, 10)+"-")
	}
	resp, err := d.client.do(req)
	if err != nil {
		return cause(ctx, err)
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusPartialContent && d.received > 0:
	case resp.StatusCode == http.StatusOK:
		if err := d.restart(); err != nil {
			return permanentError{err}
		}
	case resp.StatusCode == http.StatusRequestedRangeNotSatisfiable:
		// The file has all bytes, or more than the blob.
		if resp.Header.Get("Content-Range") == fmt.Sprintf("bytes */%d", d.received) {
			return nil
		}
		if err := d.restart(); err != nil {
			return permanentError{err}
		}
		return errors.New("the partial download is longer than the blob")
	case resp.StatusCode == http.StatusNotFound:
		return permanentError{errors.New("the server does not have it")}
	default:
		return d.client.statusError(resp)
	}
	if d.maxSize >= 0 && resp.ContentLength > d.maxSize-d.received {
		return tooLongError(d.maxSize)
	}
	body := io.Reader(resp.Body)
	if d.size >= 0 {
		body = io.LimitReader(body, d.size-d.received+1) // one more byte detects a longer body
	} else if d.maxSize >= 0 {
		body = io.LimitReader(body, d.maxSize-d.received+1)
	}
	err = d.readBody(ctx, body, stallTimer)
	if d.maxSize >= 0 && d.received > d.maxSize {
		return errors.Join(tooLongError(d.maxSize), d.restart())
	}
	if err == nil && d.size >= 0 && d.received < d.size {
		err = io.ErrUnexpectedEOF
	}
	return cause(ctx, err)
}

// errLarger is in the errors about a blob that exceeds its limit.
var errLarger = errors.New("larger")

func tooLongError(maxSize int64) error {
	return permanentError{fmt.Errorf("it is %w than %s", errLarger, muster.Size(maxSize))}
}

func (d *download) readBody(ctx context.Context, body io.Reader, stallTimer *time.Timer) error {
	buf := d.client.throttle.clip(make([]byte, maxChunk))
	for {
		n, err := body.Read(buf)
		if n > 0 {
			if err := d.client.throttle.wait(ctx, n); err != nil {
				return err
			}
			stallTimer.Reset(stallTimeout)
			if _, err := d.f.Write(buf[:n]); err != nil {
				return permanentError{err}
			}
			d.sum.Write(buf[:n])
			d.received += int64(n)
			d.client.cfg.OnTransfer(true, n)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// cause returns the cause of ctx if it has ended, otherwise err.
func cause(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
