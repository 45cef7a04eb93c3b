package trainforge

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dialect/trainforge/project"
)

const (
	callTimeout     = 15 * time.Second
	transferTimeout = 15 * time.Minute // of projects and results
	maxResponse     = 32 << 20
)

// serverClient is a TrainForge server.
type serverClient struct {
	base      string
	token     string
	http      *http.Client
	userAgent string

	mu          sync.Mutex
	retryAt     time.Time // before which the server wants no requests: it said 429
	rateLimited int
}

func newServerClient(base, token string, h *http.Client, userAgent string) (*serverClient, error) {
	u, err := url.Parse(base)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, muster.Errorf(muster.Invalid, "--scheduler %q is no URL: write such as http://localhost:3000", truncate(base, 200))
	}
	if h == nil {
		h = &http.Client{}
	}
	return &serverClient{base: strings.TrimRight(base, "/"), token: token, http: h, userAgent: userAgent}, nil
}

// host names the server without what may be secret in its URL.
func (r *serverClient) host() string {
	u, err := url.Parse(r.base)
	if err != nil {
		return ""
	}
	return u.Host
}

// response is what the server said.
type response struct {
	status int
	body   []byte
}

func (a *response) ok() bool { return a.status >= 200 && a.status < 300 }

// errorText is the error in an answer.
func (a *response) errorText() string {
	var reply struct {
		Error   any    `json:"error"`
		Message string `json:"message"`
	}
	if json.Unmarshal(a.body, &reply) == nil {
		if s, ok := reply.Error.(string); ok && s != "" {
			return truncate(s, 300)
		}
		if reply.Message != "" {
			return truncate(reply.Message, 300)
		}
	}
	return http.StatusText(a.status)
}

// asError is the error for an answer that is not the expected one. What the server will never take has a code by which the
// bridge gives up.
func (a *response) asError(action string) error {
	code := muster.Unavailable
	switch a.status {
	case http.StatusBadRequest, http.StatusUnprocessableEntity, http.StatusRequestEntityTooLarge:
		code = muster.Invalid
	case http.StatusNotFound, http.StatusGone:
		code = muster.NotFound
	case http.StatusConflict:
		code = muster.Conflict
	case http.StatusInternalServerError:
		if strings.Contains(string(a.body), "Job not found") { // as the current server answers
			code = muster.NotFound
		}
	}
	return muster.Errorf(code, "the TrainForge server answers %s with %d: %s", action, a.status, a.errorText())
}

// call sends JSON and returns the answer. It fails with Unavailable.
func (r *serverClient) call(ctx context.Context, method, path string, body any) (*response, error) {
	var b []byte
	if body != nil {
		var err error
		if b, err = json.Marshal(body); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	res, err := r.send(ctx, method, path, "application/json", bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxResponse+1))
	switch {
	case err != nil:
		return nil, muster.Errorf(muster.Unavailable, "the TrainForge server's answer broke off: %w", err)
	case len(text) > maxResponse:
		return nil, muster.Errorf(muster.Unavailable, "the TrainForge server's answer has more than %d bytes", maxResponse)
	}
	return &response{res.StatusCode, text}, nil
}

func (r *serverClient) send(ctx context.Context, method, path, kind string, body io.Reader, size int64) (*http.Response, error) {
	r.mu.Lock()
	wait := time.Until(r.retryAt)
	r.mu.Unlock()
	if wait > 0 {
		return nil, muster.Errorf(muster.Unavailable, "the TrainForge server wants no requests for another %s", wait.Round(time.Second))
	}
	q, err := http.NewRequestWithContext(ctx, method, r.base+path, body)
	if err != nil {
		return nil, muster.Errorf(muster.Invalid, "the request cannot be made: %w", err)
	}
	q.ContentLength = size
	q.Header.Set("Content-Type", kind)
	q.Header.Set("User-Agent", r.userAgent)
	q.Header.Set("ngrok-skip-browser-warning", "true")
	if r.token != "" {
		q.Header.Set("Authorization", "Bearer "+r.token)
	}
	res, err := r.http.Do(q)
	if err != nil {
		if urlErr, ok := errors.AsType[*url.Error](err); ok { // it names the URL, which may hold a key
			err = urlErr.Err
		}
		return nil, muster.Errorf(muster.Unavailable, "the TrainForge server at %s does not answer: %w", r.host(), err)
	}
	r.noteRateLimit(res)
	return res, nil
}

// noteRateLimit takes note of 429: TrainForge takes 1000 requests of an address in 15 minutes, older ones 100.
func (r *serverClient) noteRateLimit(res *http.Response) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if res.StatusCode != http.StatusTooManyRequests {
		r.rateLimited = 0
		return
	}
	wait := min(5*time.Second<<min(r.rateLimited, 5), 2*time.Minute)
	r.rateLimited++
	if s, err := strconv.Atoi(res.Header.Get("Retry-After")); err == nil && s > 0 {
		wait = min(time.Duration(s)*time.Second, 15*time.Minute)
	}
	r.retryAt = time.Now().Add(wait)
}

// download writes a project to a new file in dir.
func (r *serverClient) download(ctx context.Context, path, dir string) (*os.File, int64, error) {
	ctx, cancel := context.WithTimeout(ctx, transferTimeout)
	defer cancel()
	res, err := r.send(ctx, http.MethodGet, path, "application/json", nil, 0)
	if err != nil {
		return nil, 0, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(io.LimitReader(res.Body, maxBody)) // for the message
		return nil, 0, (&response{res.StatusCode, b}).asError("the request for the project")
	}
	f, err := os.CreateTemp(dir, "project-*.zip")
	if err != nil {
		return nil, 0, err
	}
	n, err := io.Copy(f, io.LimitReader(res.Body, project.MaxBytes+1))
	switch {
	case err != nil:
		err = muster.Errorf(muster.Unavailable, "the project broke off: %w", err)
	case n > project.MaxBytes:
		err = muster.Errorf(muster.Invalid, "the project has more than %s", muster.Size(project.MaxBytes))
	}
	if err != nil {
		_ = f.Close()
		_ = os.Remove(f.Name()) // at the next start at the latest
		return nil, 0, err
	}
	return f, n, nil
}

// upload sends a file as a field of a multipart body.
func (r *serverClient) upload(ctx context.Context, path, field, name string, f *os.File, size int64) (*response, error) {
	var head bytes.Buffer
	m := multipart.NewWriter(&head)
	if _, err := m.CreateFormFile(field, name); err != nil {
		return nil, err
	}
	tail := fmt.Sprintf("\r\n--%s--\r\n", m.Boundary())
	body := io.MultiReader(bytes.NewReader(head.Bytes()), io.NewSectionReader(f, 0, size), strings.NewReader(tail))
	ctx, cancel := context.WithTimeout(ctx, transferTimeout)
	defer cancel()
	res, err := r.send(ctx, http.MethodPost, path, m.FormDataContentType(), body, int64(head.Len())+size+int64(len(tail)))
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxBody))
	if err != nil {
		return nil, muster.Errorf(muster.Unavailable, "the TrainForge server's answer broke off: %w", err)
	}
	return &response{res.StatusCode, text}, nil
}
