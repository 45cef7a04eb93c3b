package client

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/wire"
)

// minExpectSize is the size from which an upload asks before it sends.
const minExpectSize = 1 << 20

// MissingBlobs returns those of the hashes whose blobs the server does not have.
func (c *Client) MissingBlobs(ctx context.Context, hashes []string) ([]string, error) {
	var missing []string
	for len(hashes) > 0 {
		n := min(len(hashes), wire.MaxMissing)
		var answer wire.Missing
		err := c.do(ctx, call{
			method: http.MethodPost, path: "/blobs/missing", body: wire.Hashes{SHA256: hashes[:n]}, out: &answer, idempotent: true,
		})
		if err != nil {
			return nil, err
		}
		missing, hashes = append(missing, answer.Missing...), hashes[n:]
	}
	return missing, nil
}

// CheckBlob reports that a blob's bytes were wrong, and returns what the server found of its file: a damaged one is set
// aside, and may be uploaded again.
func (c *Client) CheckBlob(ctx context.Context, sha256 string) (wire.BlobCheck, error) {
	var answer wire.BlobCheck
	err := c.do(ctx, call{method: http.MethodPost, path: "/blobs/" + sha256 + "/check", out: &answer})
	return answer, err
}

// PutBlob uploads size bytes under their SHA-256. It goes on where an earlier
// try broke off. progress, if not nil, is told how many bytes the server was sent.
func (c *Client) PutBlob(ctx context.Context, sha256 string, r io.ReaderAt, size int64, progress func(done int64)) error {
	offset := int64(0)
	deadline := time.Now().Add(c.opts.StreamRetryTimeout)
	for b := (backoff{}); ; {
		next, err := c.putFrom(ctx, sha256, r, offset, size, progress)
		if err == nil {
			return nil
		}
		progressed := next > offset
		if muster.CodeOf(err) == muster.Invalid && offset > 0 {
			// The server kept other bytes, by somebody who broke off, and has dropped them.
			offset = 0
			if !time.Now().Before(deadline) || b.wait(ctx) != nil {
				return err
			}
			continue
		}
		if progressed {
			b, deadline = backoff{}, time.Now().Add(c.opts.StreamRetryTimeout)
		}
		offset = next
		if code := muster.CodeOf(err); code == muster.Conflict && progressed {
			continue
		} else if code != muster.Unavailable && code != muster.Conflict {
			return err
		}
		if !time.Now().Before(deadline) || b.wait(ctx) != nil {
			return err
		}
	}
}

// putFrom uploads from offset on, and says where to go on if that fails.
func (c *Client) putFrom(ctx context.Context, sha256 string, r io.ReaderAt, offset, size int64, progress func(int64)) (int64, error) {
	ctx, resetWatchdog, stop := withWatchdog(ctx, stallTimeout)
	defer stop()
	remaining := max(size-offset, 0) // without any, the server looks at what it keeps
	body := &progressReader{r: io.NewSectionReader(r, offset, remaining), n: offset, resetWatchdog: resetWatchdog, progress: progress}
	defer body.mute()
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, c.base.String()+wire.Prefix+"/blobs/"+sha256, body)
	if err != nil {
		return offset, fmt.Errorf("make request: %w", err)
	}
	req.ContentLength = remaining
	if req.ContentLength == 0 {
		req.Body = http.NoBody
	}
	req.Header.Set("Content-Type", "application/octet-stream")
	req.Header.Set(wire.HeaderOffset, strconv.FormatInt(offset, 10))
	if req.ContentLength >= minExpectSize {
		req.Header.Set("Expect", "100-continue")
	}
	c.setHeaders(req)
	resp, err := c.opts.HTTP.Do(req)
	if err != nil {
		return offset, c.unreachableError(ctx, err) // the next try is told by a Conflict how much came
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode/100 == 2 {
		return size, nil
	}
	if n, err := strconv.ParseInt(resp.Header.Get(wire.HeaderOffset), 10, 64); err == nil && n >= 0 {
		offset = n
	}
	return offset, c.responseError(resp)
}

// progressReader counts the bytes that are read through it, and tells of them until it
// is muted: a transport may go on reading after it has given a request up.
type progressReader struct {
	r             io.Reader
	n             int64
	resetWatchdog func()
	progress      func(int64)

	mu    sync.Mutex
	muted bool
}

func (c *progressReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.muted {
		c.resetWatchdog()
		if c.progress != nil {
			c.progress(c.n)
		}
	}
	return n, err
}

func (c *progressReader) mute() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.muted = true
}
