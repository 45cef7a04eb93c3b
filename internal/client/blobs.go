package client

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/wire"
)

// minExpectSize is the size from which an upload asks the server before it sends the body.
const minExpectSize = 1 << 20

// MissingBlobs returns the hashes of blobs that the server does not have.
func (c *Client) MissingBlobs(ctx context.Context, hashes []string) ([]string, error) {
	var missing []string
	for chunk := range slices.Chunk(hashes, wire.MaxMissing) {
		answer, err := post[wire.Missing](ctx, c, "/blobs/missing", wire.Hashes{SHA256: chunk}, true)
		if err != nil {
			return nil, err
		}
		missing = append(missing, answer.Missing...)
	}
	return missing, nil
}

// CheckBlob asks the server to verify a blob, and returns the result. The server removes a damaged blob, which may be
// uploaded again.
func (c *Client) CheckBlob(ctx context.Context, sha256 string) (wire.BlobCheck, error) {
	return post[wire.BlobCheck](ctx, c, "/blobs/"+sha256+"/check", nil, false)
}

// PutBlob uploads size bytes under their SHA-256. It resumes an interrupted
// upload. progress, if not nil, is called with the number of bytes sent.
func (c *Client) PutBlob(ctx context.Context, sha256 string, r io.ReaderAt, size int64, progress func(done int64)) error {
	offset := int64(0)
	retries := c.newRetrier(c.opts.StreamRetryTimeout)
	for {
		next, err := c.putFrom(ctx, sha256, r, offset, size, progress)
		if err == nil {
			return nil
		}
		code, progressed := muster.CodeOf(err), next > offset
		switch {
		case code == muster.Invalid && offset > 0: // the server had other bytes, of another interrupted upload, and has dropped them
			next, progressed = 0, false
		case code != muster.Unavailable && code != muster.Conflict:
			return err
		}
		if progressed {
			retries.progressed(c.opts.StreamRetryTimeout)
		}
		offset = next
		if (!progressed || code != muster.Conflict) && !retries.wait(ctx, err) {
			return err
		}
	}
}

// putFrom uploads from offset on, and returns where to resume if that fails.
func (c *Client) putFrom(ctx context.Context, sha256 string, r io.ReaderAt, offset, size int64, progress func(int64)) (int64, error) {
	ctx, resetWatchdog, stop := withWatchdog(ctx, stallTimeout)
	defer stop()
	remaining := max(size-offset, 0) // if 0, the server checks the bytes that it has
	body := &progressReader{r: io.NewSectionReader(r, offset, remaining), n: offset, resetWatchdog: resetWatchdog, progress: progress}
	defer body.mute()
	req, err := c.newRequest(ctx, http.MethodPut, "/blobs/"+sha256, nil, nil, body)
	if err != nil {
		return offset, err
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
	resp, err := c.roundTrip(req)
	if err != nil {
		return offset, c.unreachableError(ctx, err) // the next try gets a Conflict with the number of bytes received
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

// progressReader reports the bytes read until it is muted: a transport may continue to
// read after the request has ended.
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
