package transfer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
)

// headerOffset is the number of bytes that the server has, in requests and responses.
const headerOffset = "Upload-Offset"

// UploadFile implements process.Transfer. Its errors are run.TaskErrors.
func (c *Client) UploadFile(ctx context.Context, f *os.File) (sha string, size int64, err error) {
	sha, size, err = c.send(ctx, f)
	if err != nil {
		return "", 0, run.Failf(muster.UploadFailed, "upload the file: %w", err)
	}
	return sha, size, nil
}

func (c *Client) send(ctx context.Context, f *os.File) (string, int64, error) {
	info, err := f.Stat()
	if err != nil {
		return "", 0, err
	}
	if !info.Mode().IsRegular() {
		return "", 0, fmt.Errorf("%s is not a regular file", f.Name())
	}
	release, err := c.slot(ctx)
	if err != nil {
		return "", 0, err
	}
	defer release()
	sum := sha256.New()
	size, err := io.Copy(sum, io.LimitReader(run.ContextReader(ctx, f), info.Size())) // the task may append to it meanwhile
	if err != nil {
		return "", 0, err
	}
	u := &upload{client: c, f: f, size: size, sha: hex.EncodeToString(sum.Sum(nil))}
	err = c.retry(ctx, "uploading "+short(u.sha), u.try)
	return u.sha, u.size, err
}

type upload struct {
	client *Client
	f      *os.File
	sha    string
	size   int64
}

// try requests how many bytes the server has and sends the rest.
func (u *upload) try(ctx context.Context) (moved int64, err error) {
	offset, done, err := u.serverOffset(ctx)
	if err != nil || done {
		return 0, err
	}
	return u.send(ctx, offset)
}

// serverOffset returns how many bytes the server has, or done if the blob is complete. They may be wrong bytes, and more than the file
// has, from another interrupted upload.
func (u *upload) serverOffset(ctx context.Context) (offset int64, done bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, stallTimeout)
	defer cancel()
	req, err := u.client.request(ctx, http.MethodHead, u.sha)
	if err != nil {
		return 0, false, err
	}
	resp, err := u.client.do(req)
	if err != nil {
		return 0, false, err
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
		return 0, true, nil
	case http.StatusNotFound:
	default:
		return 0, false, u.client.statusError(resp)
	}
	if header := resp.Header.Get(headerOffset); header != "" {
		offset, err = strconv.ParseInt(header, 10, 64)
		if err != nil || offset < 0 {
			return 0, false, fmt.Errorf("the server returned invalid offset %q for %d bytes", header, u.size)
		}
	}
	return offset, false, nil
}

func (u *upload) send(ctx context.Context, offset int64) (moved int64, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stallTimer := time.AfterFunc(stallTimeout, func() { cancel(fmt.Errorf("no data sent for %s", stallTimeout)) })
	defer stallTimer.Stop()
	req, err := u.client.request(ctx, http.MethodPut, u.sha)
	if err != nil {
		return 0, err
	}
	rest := max(u.size-offset, 0) // 0: the server verifies what it has
	body := &uploadBody{
		r: io.NewSectionReader(u.f, offset, rest), stallTimer: stallTimer, onTransfer: u.client.cfg.OnTransfer,
		clip: u.client.throttle.clip, wait: func(n int) error { return u.client.throttle.wait(ctx, n) },
	}
	req.Header.Set(headerOffset, strconv.FormatInt(offset, 10))
	req.Header.Set("Content-Type", "application/octet-stream")
	if req.ContentLength = rest; rest > 0 {
		req.Body = io.NopCloser(body)
	}
	resp, err := u.client.do(req)
	if err != nil {
		return body.sent.Load(), cause(ctx, err)
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK, http.StatusCreated, http.StatusNoContent:
		return body.sent.Load(), nil
	case http.StatusConflict:
		// Another upload of the same blob made progress: request the offset again. That is not progress of this one.
		return 0, errors.New("the server's offset has changed")
	case http.StatusBadRequest, http.StatusUnprocessableEntity:
		if offset > 0 {
			return 0, errors.New("the server had wrong bytes and dropped them")
		}
		return 0, permanentError{fmt.Errorf("the server rejected the bytes (%s): did the file change during the upload?", resp.Status)}
	default:
		return body.sent.Load(), u.client.statusError(resp)
	}
}

// uploadBody is a request body that is throttled and reports its progress. The transport may still read it after the response.
type uploadBody struct {
	r          io.Reader
	stallTimer *time.Timer
	clip       func([]byte) []byte
	wait       func(n int) error
	onTransfer func(in bool, n int)
	sent       atomic.Int64
}

func (o *uploadBody) Read(p []byte) (int, error) {
	n, err := o.r.Read(o.clip(p))
	if n > 0 {
		if err := o.wait(n); err != nil {
			return 0, err
		}
		o.stallTimer.Reset(stallTimeout)
		o.sent.Add(int64(n))
		o.onTransfer(false, n)
	}
	return n, err
}
