package mlocbridge

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/outbound"
	"github.com/muster-dev/muster/internal/backoff"
	"github.com/muster-dev/muster/internal/dialect/bridge"
	"github.com/muster-dev/muster/internal/dialect/mloc"
	"github.com/muster-dev/muster/internal/origin"
)

// Bounds of what the bridge does over HTTP. A timeout is, as in the programs of MLOC, how long the other side may be
// silent, and not how long all of it may take.
const (
	postTimeout   = 15 * time.Second // of a result, unless its destination says another
	uploadTimeout = 30 * time.Second // of a file
	fetchTimeout  = time.Minute      // of weights and data, unless the task says another
	maxTimeout    = time.Hour
	maxRedirects  = 5
)

// destination is spec.output.destination.
type destination struct {
	Type, Path, URL, Method string
	Headers                 http.Header
	Timeout                 time.Duration
}

// parseDestination reads spec.output.destination. Where there is none, results stay in the folder of results.
func parseDestination(spec mloc.Object) (destination, error) {
	o := mloc.Lookup(spec, "output", "destination")
	d := destination{Type: strings.ToLower(cmp.Or(mloc.Text(o["type"]), "local")), Path: mloc.Text(o["path"]), URL: strings.TrimRight(mloc.Text(o["url"]), "/"), Method: strings.ToUpper(cmp.Or(mloc.Text(o["method"]), http.MethodPost)), Timeout: parseTimeout(o["timeoutSec"], postTimeout)}
	var err error
	if d.Headers, err = parseHeaders(o["headers"], "spec.output.destination.headers"); err != nil {
		return d, err
	}
	if d.Type != "http" {
		return d, nil
	}
	if err := checkURL(d.URL); err != nil {
		return d, mloc.InvalidSpec("spec.output.destination.url is %q: a destination of type http needs the address to which results are posted, such as http://host:8000/api/v1/results", mloc.Truncate(d.URL, 200))
	}
	return d, nil
}

// parseHeaders reads an object of texts.
func parseHeaders(v any, at string) (http.Header, error) {
	o, ok := v.(mloc.Object)
	if !ok && v != nil {
		return nil, mloc.InvalidSpec("%s must be an object of texts", at)
	}
	out := make(http.Header, len(o))
	for k, v := range o {
		s, ok := v.(string)
		if !ok || len(o) > 100 || len(s) > 16<<10 {
			return nil, mloc.InvalidSpec("%s.%s is not a text, or is too long", at, mloc.Truncate(k, 64))
		}
		out.Set(k, s)
	}
	return out, nil
}

// parseTimeout reads a number of seconds.
func parseTimeout(v any, fallback time.Duration) time.Duration {
	f := mloc.Float(v)
	if f <= 0 {
		return fallback
	}
	return time.Duration(min(f, maxTimeout.Seconds()) * float64(time.Second))
}

func checkURL(s string) error {
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return muster.Errorf(muster.Invalid, "%q is not the address of an HTTP server: write one such as http://127.0.0.1:8000", mloc.Truncate(s, 200))
	}
	return nil
}

type httpClient struct {
	client    *http.Client
	bandwidth float64 // bytes a second of result posts; 0 means no limit
}

func newHTTPClient(bandwidth float64) *httpClient {
	return &httpClient{bandwidth: bandwidth, client: &http.Client{CheckRedirect: checkRedirect, Transport: &http.Transport{
		Proxy: http.ProxyFromEnvironment, MaxIdleConnsPerHost: 2, IdleConnTimeout: 30 * time.Second, TLSHandshakeTimeout: 10 * time.Second,
	}}}
}

// checkRedirect follows redirects of downloads, as MLOC's worker does, but another server does not receive the headers, which may contain keys. What
// is posted, such as a result, is sent to no other server.
func checkRedirect(req *http.Request, via []*http.Request) error {
	if req.Method != http.MethodGet {
		return origin.CheckRedirect(req, via)
	}
	return outbound.Redirects(maxRedirects)(req, via)
}

// send sends a request and hands its answer to handle. It fails if either side is silent for longer than idleTimeout. body may
// be nil.
func (w *httpClient) send(ctx context.Context, idleTimeout time.Duration, method, address string, header http.Header, body io.Reader, size int64, handle func(*http.Response) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	idleTimer := time.AfterFunc(idleTimeout, func() {
		cancel(muster.Errorf(muster.Unavailable, "%s did not answer within %v", address, idleTimeout))
	})
	defer idleTimer.Stop()
	onRead := func() { idleTimer.Reset(idleTimeout) }
	if body != nil {
		body = &activityReader{r: body, onRead: onRead}
	}
	req, err := http.NewRequestWithContext(ctx, method, address, body)
	if err != nil {
		return muster.Errorf(muster.Invalid, "cannot send %s %s: %w", mloc.Truncate(method, 16), mloc.Truncate(address, 200), err)
	}
	if body != nil {
		req.ContentLength = size
	}
	maps.Copy(req.Header, header)
	req.Host = cmp.Or(header.Get("Host"), req.Host)
	resp, err := w.client.Do(req)
	if err != nil {
		if cause := context.Cause(ctx); ctx.Err() != nil && muster.CodeOf(cause) == muster.Unavailable {
			return cause
		}
		return muster.Errorf(muster.Unavailable, "%w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	onRead()
	resp.Body = struct {
		io.Reader
		io.Closer
	}{&activityReader{r: resp.Body, onRead: onRead}, resp.Body}
	return handle(resp)
}

// activityReader reports when bytes are read.
type activityReader struct {
	r      io.Reader
	onRead func()
}

func (h *activityReader) Read(p []byte) (int, error) {
	n, err := h.r.Read(p)
	if n > 0 {
		h.onRead()
	}
	return n, err
}

// statusError is the answer of a host that does not take something: its text is that of MLOC's worker.
type statusError struct {
	status int
	body   string
}

func (r *statusError) Error() string {
	return "returned status " + strconv.Itoa(r.status) + ": " + r.body
}

// checkStatus fails unless the status of an answer is below 300: what is sent is not sent again to where a host redirects it.
func checkStatus(resp *http.Response) error {
	b, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
	if resp.StatusCode >= 300 {
		return &statusError{resp.StatusCode, strings.TrimSpace(mloc.Truncate(string(b), 500))}
	}
	return nil
}

// withContentType returns headers with this content type.
func withContentType(header http.Header, contentType string) http.Header {
	out := http.Header{}
	maps.Copy(out, header)
	out.Set("Content-Type", contentType)
	return out
}

func (w *httpClient) post(ctx context.Context, d destination, taskID, workerID string, result mloc.Object) error {
	body, err := mloc.Encode(mloc.Object{"task_id": taskID, "result": result, "worker_id": workerID})
	if err != nil {
		return err
	}
	if w.bandwidth > 0 {
		if err := backoff.Sleep(ctx, time.Duration(min(float64(len(body))/w.bandwidth, 24*3600)*float64(time.Second))); err != nil {
			return err
		}
	}
	header := withContentType(d.Headers, cmp.Or(d.Headers.Get("Content-Type"), "application/json"))
	return w.send(ctx, d.Timeout, d.Method, d.URL, header, bytes.NewReader(body), int64(len(body)), checkStatus)
}

// upload sends a file of a task to its destination, and returns the address at which it can be fetched.
func (w *httpClient) upload(ctx context.Context, d destination, taskID, path, contentType string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", muster.Errorf(muster.Internal, "cannot read %s: %w", path, err)
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return "", muster.Errorf(muster.Internal, "cannot read %s: %w", path, err)
	}
	name := filepath.Base(path)
	body, formType, length, err := bridge.FileForm("file", name, contentType, f, info.Size())
	if err != nil {
		return "", err
	}
	address := d.URL + "/" + url.PathEscape(taskID) + "/files"
	// A file that changes while it is sent ends in an error of its length.
	if err := w.send(ctx, max(uploadTimeout, d.Timeout), http.MethodPost, address, withContentType(d.Headers, formType), body, length, checkStatus); err != nil {
		return "", err
	}
	return address + "/" + url.PathEscape(name), nil
}

// fetch writes what an address gives into a file.
func (w *httpClient) fetch(ctx context.Context, idleTimeout time.Duration, address string, header http.Header, to string) error {
	if err := checkURL(address); err != nil {
		return err
	}
	return w.send(ctx, idleTimeout, http.MethodGet, address, header, nil, 0, func(resp *http.Response) error {
		if resp.StatusCode != http.StatusOK {
			return cmp.Or[error](checkStatus(resp), &statusError{status: resp.StatusCode})
		}
		f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
		if err != nil {
			return muster.Errorf(muster.Internal, "cannot write %s: %w", to, err)
		}
		n, err := io.Copy(f, io.LimitReader(resp.Body, mloc.MaxFile+1))
		if err = cmp.Or(err, f.Close()); err != nil {
			return muster.Errorf(muster.Unavailable, "%s broke off after %d bytes: %w", address, n, err)
		}
		if n > mloc.MaxFile {
			return muster.Errorf(muster.TooLarge, "%s has more than %d bytes", address, int64(mloc.MaxFile))
		}
		return nil
	})
}

// remoteState is the state of a task of this worker at the host.
type remoteState int

const (
	stateUnknown remoteState = iota // it cannot be asked, or its answer is not understood
	stateSilent                     // it does not answer now
	stateWaiting                    // it waits for this worker's report
	stateOver                       // it has taken the final report
	stateMoved                      // it has taken the task back, or given it to another worker
)

const maxTries = 5 // requests of one fetch

func (w *httpClient) taskState(ctx context.Context, base, token, taskID, workerID string) remoteState {
	if base == "" {
		return stateUnknown
	}
	header := http.Header{}
	if token != "" {
		header.Set("Authorization", token)
	}
	found := stateSilent
	_ = w.send(ctx, postTimeout, http.MethodGet, base+"/api/v1/tasks/"+url.PathEscape(taskID), header, nil, 0, func(resp *http.Response) error {
		b, err := io.ReadAll(io.LimitReader(resp.Body, mloc.MaxMessage+1))
		if err == nil {
			found = parseState(resp.StatusCode, b, taskID, workerID)
		}
		return err
	})
	return found
}

// parseState reads the answer of a host to the question for a task.
func parseState(status int, body []byte, taskID, workerID string) remoteState {
	var r struct {
		TaskID   string  `json:"task_id"`
		Status   string  `json:"status"`
		Assigned *string `json:"assigned_worker"`
	}
	if status >= 500 {
		return stateSilent
	}
	if err := mloc.Decode(body, mloc.MaxMessage, &r); err != nil || status != http.StatusOK || r.TaskID != taskID {
		return stateUnknown
	}
	switch r.Status {
	case mloc.StateDone, mloc.StateFailed:
		return stateOver
	case mloc.StatePending:
		return stateMoved
	case mloc.StateDispatched:
		if r.Assigned != nil && *r.Assigned != workerID {
			return stateMoved
		}
		return stateWaiting
	default:
		return stateUnknown
	}
}
