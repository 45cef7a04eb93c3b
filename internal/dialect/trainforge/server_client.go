package trainforge

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dialect/bridge"
	"github.com/muster-dev/muster/internal/dialect/lenient"
	"github.com/muster-dev/muster/internal/dialect/trainforge/project"
)

const (
	callTimeout     = 15 * time.Second
	transferTimeout = 15 * time.Minute // of projects and results
)

// serverClient is a TrainForge server.
type serverClient struct {
	*bridge.Remote

	mu          sync.Mutex
	retryAt     time.Time // no requests before it: the server answered 429
	rateLimited int
}

func newServerClient(base, token string, h *http.Client, userAgent string) (*serverClient, error) {
	header := http.Header{"User-Agent": {userAgent}, "Ngrok-Skip-Browser-Warning": {"true"}}
	if token != "" {
		header.Set("Authorization", "Bearer "+token)
	}
	r, err := bridge.NewRemote("the TrainForge server", base, h, header)
	if err != nil {
		return nil, muster.Errorf(muster.Invalid, "--scheduler: %w", err)
	}
	return &serverClient{Remote: r}, nil
}

// response is an answer of the server.
type response struct{ bridge.Response }

func (a *response) errorText() string {
	return lenient.Text(cmp.Or(a.ErrorText(), http.StatusText(a.Status)), 300)
}

// asError is the error for an answer that is not the expected one. What the server will never take has a code by which the
// bridge gives up.
func (a *response) asError(action string) error {
	code := muster.Unavailable
	switch a.Status {
	case http.StatusBadRequest, http.StatusUnprocessableEntity, http.StatusRequestEntityTooLarge:
		code = muster.Invalid
	case http.StatusNotFound, http.StatusGone:
		code = muster.NotFound
	case http.StatusConflict:
		code = muster.Conflict
	case http.StatusInternalServerError:
		if strings.Contains(string(a.Body), "Job not found") { // as the current server answers
			code = muster.NotFound
		}
	}
	return muster.Errorf(code, "the TrainForge server answers %s with %d: %s", action, a.Status, a.errorText())
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
	res, err := r.send(ctx, method, path, "application/json", bytes.NewReader(b), int64(len(b))) //nolint:bodyclose // read closes it
	if err != nil {
		return nil, err
	}
	return r.read(res)
}

// read reads an answer as a whole.
func (r *serverClient) read(res *http.Response) (*response, error) {
	a, err := r.Read(res)
	if err != nil {
		return nil, err
	}
	return &response{a}, nil
}

func (r *serverClient) send(ctx context.Context, method, path, kind string, body io.Reader, size int64) (*http.Response, error) {
	r.mu.Lock()
	wait := time.Until(r.retryAt)
	r.mu.Unlock()
	if wait > 0 {
		return nil, muster.Errorf(muster.Unavailable, "the TrainForge server wants no requests for another %s", wait.Round(time.Second))
	}
	res, err := r.Do(ctx, method, path, kind, body, size)
	if err != nil {
		return nil, err
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
		return nil, 0, (&response{bridge.Response{Status: res.StatusCode, Body: b}}).asError("the request for the project")
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
	res, err := r.send(ctx, http.MethodPost, path, m.FormDataContentType(), body, int64(head.Len())+size+int64(len(tail))) //nolint:bodyclose // read closes it
	if err != nil {
		return nil, err
	}
	return r.read(res)
}
