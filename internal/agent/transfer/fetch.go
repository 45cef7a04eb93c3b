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

// Fetch implements run.Transfer. Its errors are run.TaskErrors.
func (c *Client) Fetch(ctx context.Context, sha string, size int64, path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644) //nolint:gosec // a task's input, in the task's folder
	if err != nil {
		return run.Failf(muster.FetchFailed, "an input cannot be written: %w", err)
	}
	err = errors.Join(c.into(ctx, sha, size, f), f.Close())
	if err != nil {
		return errors.Join(fetchFailed(sha, err), os.Remove(path))
	}
	return nil
}

func fetchFailed(sha string, err error) error {
	return run.Failf(muster.FetchFailed, "the blob %s could not be fetched: %w", short(sha), err)
}

func short(sha string) string { return sha[:min(12, len(sha))] }

// into writes a blob to the empty file dst, by way of the cache unless it is too
// big for that. A negative size is unknown.
func (c *Client) into(ctx context.Context, sha string, size int64, dst *os.File) error {
	if !isHash(sha) {
		return fmt.Errorf("%q is not a SHA-256", sha)
	}
	if size > c.cache.biggest() {
		return c.download(ctx, sha, size, unbounded, dst)
	}
	src, err := c.cached(ctx, sha, size, unbounded)
	if err != nil {
		return err
	}
	defer src.Close()
	_, err = io.Copy(dst, src)
	return err
}

// unbounded stands for no bound of a blob whose size is unknown.
const unbounded = -1

// cached opens a blob in the cache, where it is brought if need be. One that is longer than most is not.
func (c *Client) cached(ctx context.Context, sha string, size, most int64) (*os.File, error) {
	unlock, err := c.cache.lock(ctx, sha)
	if err != nil {
		return nil, err
	}
	defer unlock()
	f := c.cache.open(sha, size)
	c.cfg.Cached(f != nil)
	if f != nil {
		return f, nil
	}
	part, err := c.cache.partial(sha)
	if err != nil {
		return nil, err
	}
	defer part.Close()
	if err := c.download(ctx, sha, size, most, part); err != nil {
		return nil, err
	}
	return c.cache.add(sha, part)
}

// maxWrong is how often bytes with another hash may come before a fetch fails.
const maxWrong = 3

// download brings f to the blob's bytes, going on from what it holds already.
func (c *Client) download(ctx context.Context, sha string, size, most int64, f *os.File) error {
	release, err := c.slot(ctx)
	if err != nil {
		return err
	}
	defer release()
	d := &download{client: c, sha: sha, size: size, most: most, f: f}
	if err := d.rehash(); err != nil {
		return err
	}
	wrong := 0
	return c.insist(ctx, "fetching "+short(sha), func(ctx context.Context) (int64, error) {
		before := d.have
		if err := d.more(ctx); err != nil {
			return d.have - before, err
		}
		got := hex.EncodeToString(d.sum.Sum(nil))
		if got == sha {
			return 0, nil
		}
		c.reportWrong(ctx, sha)
		if wrong++; wrong >= maxWrong {
			return 0, finalError{fmt.Errorf("the server delivers other bytes, with the hash %s", short(got))}
		}
		if err := d.restart(); err != nil {
			return 0, finalError{err}
		}
		return 0, fmt.Errorf("the bytes have the hash %s", short(got))
	})
}

// reportWrong tells the server that it delivered other bytes than a blob has: it looks at its file, and takes a new upload if
// that is damaged. If it does not hear of it, the fetch fails all the same.
func (c *Client) reportWrong(ctx context.Context, sha string) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url(sha)+"/check", http.NoBody)
	if err == nil {
		req.Header.Set("Authorization", "Bearer "+c.cfg.Key)
		var resp *http.Response
		if resp, err = c.cfg.HTTP.Do(req); err == nil {
			_ = resp.Body.Close()
			c.cfg.Log.Warn("the server delivered other bytes than the blob has, and was told", slog.String("sha256", sha), slog.String("answer", resp.Status))
			return
		}
	}
	c.cfg.Log.Warn("the server delivered other bytes than the blob has, and could not be told", slog.String("sha256", sha), slog.Any("error", err))
}

// download is a file on its way.
type download struct {
	client *Client
	sha    string
	size   int64 // negative if unknown
	most   int64 // bytes that it may have; negative if that is not known
	f      *os.File
	sum    hash.Hash // of the first have bytes of f
	have   int64
}

// rehash takes up what the file holds from an earlier try.
func (d *download) rehash() error {
	d.sum = sha256.New()
	n, err := io.Copy(d.sum, d.f)
	if err != nil {
		return err
	}
	if d.have = n; d.size >= 0 && d.have > d.size {
		return d.restart()
	}
	return nil
}

func (d *download) restart() error {
	d.sum.Reset()
	d.have = 0
	if err := d.f.Truncate(0); err != nil {
		return err
	}
	_, err := d.f.Seek(0, io.SeekStart)
	return err
}

// more asks for the bytes that are missing and appends them. It returns nil at
// the blob's end.
func (d *download) more(ctx context.Context) error {
	if d.have == d.size {
		return nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watch := time.AfterFunc(stall, func() { cancel(fmt.Errorf("nothing came for %s", stall)) })
	defer watch.Stop()
	req, err := d.client.request(ctx, http.MethodGet, d.sha)
	if err != nil {
		return finalError{err}
	}
	if d.have > 0 {
		req.Header.Set("Range", "bytes="+strconv.FormatInt(d.have, 10)+"-")
	}
	resp, err := d.client.do(req)
	if err != nil {
		return cause(ctx, err)
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusPartialContent && d.have > 0:
	case resp.StatusCode == http.StatusOK:
		if err := d.restart(); err != nil {
			return finalError{err}
		}
	case resp.StatusCode == http.StatusRequestedRangeNotSatisfiable:
		// It has no more than we have, or less than we took for a part of it.
		if resp.Header.Get("Content-Range") == fmt.Sprintf("bytes */%d", d.have) {
			return nil
		}
		if err := d.restart(); err != nil {
			return finalError{err}
		}
		return errors.New("the part that was kept is longer than the blob")
	case resp.StatusCode == http.StatusNotFound:
		return finalError{errors.New("the server does not have it")}
	default:
		return refusal(resp)
	}
	if d.most >= 0 && resp.ContentLength > d.most-d.have {
		return errTooLong(d.most)
	}
	body := io.Reader(resp.Body)
	if d.size >= 0 {
		body = io.LimitReader(body, d.size-d.have+1) // one more shows that it is too long
	} else if d.most >= 0 {
		body = io.LimitReader(body, d.most-d.have+1)
	}
	err = d.take(ctx, body, watch)
	if d.most >= 0 && d.have > d.most {
		return errors.Join(errTooLong(d.most), d.restart())
	}
	if err == nil && d.size >= 0 && d.have < d.size {
		err = io.ErrUnexpectedEOF
	}
	return cause(ctx, err)
}

func errTooLong(most int64) error {
	return finalError{fmt.Errorf("it is longer than %s", muster.Size(most))}
}

// take appends what body has.
func (d *download) take(ctx context.Context, body io.Reader, watch *time.Timer) error {
	buf := d.client.pace.cut(make([]byte, mostAtOnce))
	for {
		n, err := body.Read(buf)
		if n > 0 {
			if err := d.client.pace.wait(ctx, n); err != nil {
				return err
			}
			watch.Reset(stall)
			if _, err := d.f.Write(buf[:n]); err != nil {
				return finalError{err}
			}
			d.sum.Write(buf[:n])
			d.have += int64(n)
			d.client.cfg.Moved(true, n)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// cause prefers why ctx ended over how that showed.
func cause(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

func isHash(s string) bool {
	if len(s) != 2*sha256.Size {
		return false
	}
	for _, c := range []byte(s) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
