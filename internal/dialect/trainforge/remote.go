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
	shortLimit = 15 * time.Second
	longLimit  = 15 * time.Minute // of projects and results
	maxAnswer  = 32 << 20
)

// remote is a TrainForge server.
type remote struct {
	base  string
	token string
	http  *http.Client
	agent string

	mu    sync.Mutex
	until time.Time // before which the server wants no requests: it said 429
	fails int
}

func newRemote(base, token string, h *http.Client, agent string) (*remote, error) {
	u, err := url.Parse(base)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, muster.Errorf(muster.Invalid, "--scheduler %q is no URL: write such as http://localhost:3000", cut(base, 200))
	}
	if h == nil {
		h = &http.Client{}
	}
	return &remote{base: strings.TrimRight(base, "/"), token: token, http: h, agent: agent}, nil
}

// host names the server without what may be secret in its URL.
func (r *remote) host() string {
	u, err := url.Parse(r.base)
	if err != nil {
		return ""
	}
	return u.Host
}

// answer is what the server said.
type answer struct {
	status int
	body   []byte
}

func (a *answer) ok() bool { return a.status >= 200 && a.status < 300 }

// text is the error in an answer.
func (a *answer) text() string {
	var said struct {
		Error   any    `json:"error"`
		Message string `json:"message"`
	}
	if json.Unmarshal(a.body, &said) == nil {
		if s, ok := said.Error.(string); ok && s != "" {
			return cut(s, 300)
		}
		if said.Message != "" {
			return cut(said.Message, 300)
		}
	}
	return http.StatusText(a.status)
}

// failure is the error for an answer that is not the expected one. What the server will never take has a code by which the
// bridge gives up.
func (a *answer) failure(what string) error {
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
	return muster.Errorf(code, "the TrainForge server answers %s with %d: %s", what, a.status, a.text())
}

// call sends JSON and returns the answer. It fails with Unavailable.
func (r *remote) call(ctx context.Context, method, path string, body any) (*answer, error) {
	var b []byte
	if body != nil {
		var err error
		if b, err = json.Marshal(body); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, shortLimit)
	defer cancel()
	res, err := r.send(ctx, method, path, "application/json", bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, muster.Errorf(muster.Unavailable, "the TrainForge server's answer broke off: %w", err)
	case len(text) > maxAnswer:
		return nil, muster.Errorf(muster.Unavailable, "the TrainForge server's answer has more than %d bytes", maxAnswer)
	}
	return &answer{res.StatusCode, text}, nil
}

func (r *remote) send(ctx context.Context, method, path, kind string, body io.Reader, size int64) (*http.Response, error) {
	r.mu.Lock()
	wait := time.Until(r.until)
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
	q.Header.Set("User-Agent", r.agent)
	q.Header.Set("ngrok-skip-browser-warning", "true")
	if r.token != "" {
		q.Header.Set("Authorization", "Bearer "+r.token)
	}
	res, err := r.http.Do(q)
	if err != nil {
		if told, ok := errors.AsType[*url.Error](err); ok { // it names the URL, which may hold a key
			err = told.Err
		}
		return nil, muster.Errorf(muster.Unavailable, "the TrainForge server at %s does not answer: %w", r.host(), err)
	}
	r.heed(res)
	return res, nil
}

// heed takes note of 429: TrainForge takes 1000 requests of an address in 15 minutes, older ones 100.
func (r *remote) heed(res *http.Response) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if res.StatusCode != http.StatusTooManyRequests {
		r.fails = 0
		return
	}
	wait := min(5*time.Second<<min(r.fails, 5), 2*time.Minute)
	r.fails++
	if s, err := strconv.Atoi(res.Header.Get("Retry-After")); err == nil && s > 0 {
		wait = min(time.Duration(s)*time.Second, 15*time.Minute)
	}
	r.until = time.Now().Add(wait)
}

// download writes a project to a new file in dir.
func (r *remote) download(ctx context.Context, path, dir string) (*os.File, int64, error) {
	ctx, cancel := context.WithTimeout(ctx, longLimit)
	defer cancel()
	res, err := r.send(ctx, http.MethodGet, path, "application/json", nil, 0)
	if err != nil {
		return nil, 0, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(io.LimitReader(res.Body, maxBody)) // for the message
		return nil, 0, (&answer{res.StatusCode, b}).failure("the request for the project")
	}
	f, err := os.CreateTemp(dir, "project-*.zip")
	if err != nil {
		return nil, 0, err
	}
	n, err := io.Copy(f, io.LimitReader(res.Body, project.Most+1))
	switch {
	case err != nil:
		err = muster.Errorf(muster.Unavailable, "the project broke off: %w", err)
	case n > project.Most:
		err = muster.Errorf(muster.Invalid, "the project has more than %s", muster.Size(project.Most))
	}
	if err != nil {
		_ = f.Close()
		_ = os.Remove(f.Name()) // at the next start at the latest
		return nil, 0, err
	}
	return f, n, nil
}

// upload sends a file as a field of a multipart body.
func (r *remote) upload(ctx context.Context, path, field, name string, f *os.File, size int64) (*answer, error) {
	var head bytes.Buffer
	m := multipart.NewWriter(&head)
	if _, err := m.CreateFormFile(field, name); err != nil {
		return nil, err
	}
	tail := fmt.Sprintf("\r\n--%s--\r\n", m.Boundary())
	body := io.MultiReader(bytes.NewReader(head.Bytes()), io.NewSectionReader(f, 0, size), strings.NewReader(tail))
	ctx, cancel := context.WithTimeout(ctx, longLimit)
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
	return &answer{res.StatusCode, text}, nil
}
