package bridge

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/atomicfile"
)

const maxResponse = 50 << 20 // bytes of an answer of a foreign server

// Remote sends requests to a foreign server. Its methods may be called at the same time.
type Remote struct {
	Base   string // the URL, without a slash at its end. It may contain a key
	Host   string // host:port
	name   string
	client *http.Client
	header http.Header
}

// NewRemote returns the server at base, which name names in errors, such as "the QUBIX backend". header is part of each request.
// It is Invalid if base is not an HTTP URL. A nil client means one without options.
func NewRemote(name, base string, client *http.Client, header http.Header) (*Remote, error) {
	base = strings.TrimRight(base, "/")
	u, err := url.Parse(base)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, muster.Errorf(muster.Invalid, "%.200q is not an HTTP URL: write such as http://127.0.0.1:8080", base)
	}
	if client == nil {
		client = &http.Client{}
	}
	return &Remote{Base: base, Host: u.Host, name: name, client: client, header: header}, nil
}

// Origin is the server's URL without its path, which may contain a key.
func (r *Remote) Origin() string {
	scheme, _, _ := strings.Cut(r.Base, "://")
	return scheme + "://" + r.Host
}

// Response is an answer that was read as a whole.
type Response struct {
	Status     int
	RetryAfter time.Duration // that the server asks for; 0 if it does not
	Body       []byte
}

// OK reports whether the status is 2xx.
func (a *Response) OK() bool { return a.Status >= 200 && a.Status < 300 }

// ErrorText returns the text of the JSON field error or message, "" if there is none.
func (a *Response) ErrorText() string {
	var fields map[string]json.RawMessage
	_ = json.Unmarshal(a.Body, &fields) // an answer that is not an object has none
	for _, name := range []string{"error", "message"} {
		var s string
		if json.Unmarshal(fields[name], &s) == nil && s != "" {
			return s
		}
	}
	return ""
}

// Call sends body as JSON unless it is nil, and returns the answer. It is Unavailable without an answer within timeout.
func (r *Remote) Call(ctx context.Context, method, path string, body any, timeout time.Duration) (Response, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var data []byte
	if body != nil {
		var err error
		if data, err = json.Marshal(body); err != nil {
			return Response{}, muster.Errorf(muster.Invalid, "cannot encode the request: %w", err)
		}
	}
	resp, err := r.Do(ctx, method, path, "application/json", bytes.NewReader(data), int64(len(data))) //nolint:bodyclose // Read closes it
	if err != nil {
		return Response{}, err
	}
	return r.Read(resp)
}

// Do sends size bytes of body. The caller closes the body of the response. It is Unavailable without one.
func (r *Remote) Do(ctx context.Context, method, path, contentType string, body io.Reader, size int64) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, r.Base+path, body)
	if err != nil {
		return nil, muster.Errorf(muster.Invalid, "cannot create the request: %w", err)
	}
	req.ContentLength = size
	req.Header = r.header.Clone()
	req.Header.Set("Content-Type", contentType)
	resp, err := r.client.Do(req)
	if err != nil {
		if e, ok := errors.AsType[*url.Error](err); ok {
			err = e.Err // without the URL, which may contain a key
		}
		return nil, muster.Errorf(muster.Unavailable, "%s at %s does not answer: %w", r.name, r.Origin(), err)
	}
	return resp, nil
}

// Read reads a response and closes its body.
func (r *Remote) Read(resp *http.Response) (Response, error) {
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxResponse+1))
	if err == nil && len(body) > maxResponse {
		err = errors.New("it has more than 50 MiB")
	}
	if err != nil {
		return Response{}, muster.Errorf(muster.Unavailable, "cannot read the answer of %s at %s: %w", r.name, r.Origin(), err)
	}
	a := Response{Status: resp.StatusCode, Body: body}
	if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && seconds > 0 {
		a.RetryAfter = time.Duration(min(seconds, 24*3600)) * time.Second
	}
	return a, nil
}

// Identity returns the id of a bridge that is kept in the file at path. If there is none that is valid, it stores the one of create.
func Identity(path string, valid func(string) bool, create func() string) (string, error) {
	stored, err := os.ReadFile(path)
	if id := strings.TrimSpace(string(stored)); err == nil && valid(id) {
		return id, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", muster.Errorf(muster.Internal, "cannot read the bridge's id: %w", err)
	}
	id := create()
	if err := atomicfile.Write(path, []byte(id+"\n"), 0o600); err != nil {
		return "", muster.Errorf(muster.Internal, "cannot store the bridge's id: %w", err)
	}
	return id, nil
}
