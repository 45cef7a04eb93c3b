package bridge

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/atomicfile"
	"github.com/muster-dev/muster/internal/backoff"
	"github.com/muster-dev/muster/internal/dialect/lenient"
	"github.com/muster-dev/muster/internal/origin"
)

const maxResponse = 50 << 20 // bytes of an answer of a foreign server

// RemoteConfig configures a Remote.
type RemoteConfig struct {
	Name      string              // in errors, such as "the QUBIX backend"
	URL       string              // may contain a key
	Option    string              // that has the URL, such as "--backend"
	Transport http.RoundTripper   // nil means http.DefaultTransport
	Header    http.Header         // of each request
	Codes     map[int]muster.Code // of answers by status; the others that are not 2xx are Unavailable
	KeyHint   string              // what to do after the status 401
}

// Remote sends requests to a foreign server, and to no other one, also if it redirects them. Its methods may be called concurrently.
type Remote struct {
	Base string // the URL, without a slash at its end. It may contain a key
	Host string // host:port
	cfg  RemoteConfig
	http *http.Client
}

// NewRemote returns an Invalid error if the URL is not an HTTP URL.
func NewRemote(cfg RemoteConfig) (*Remote, error) {
	base := strings.TrimRight(cfg.URL, "/")
	u, err := url.Parse(base)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, muster.Errorf(muster.Invalid, "%s: %.200q is not an HTTP URL: write such as http://127.0.0.1:8080", cfg.Option, muster.HideCredentials(base))
	}
	return &Remote{Base: base, Host: u.Host, cfg: cfg, http: origin.Client(&http.Client{Transport: cfg.Transport})}, nil
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

	remote *Remote
}

// OK reports whether the status is 2xx.
func (a *Response) OK() bool { return a.Status >= 200 && a.Status < 300 }

// IsTemporary reports whether the server may accept the same request later.
func (a *Response) IsTemporary() bool {
	return a.Status >= 500 || a.Status == http.StatusTooManyRequests
}

// ErrorText returns the text of the JSON field error or message, "" if there is none.
func (a *Response) ErrorText() string {
	fields := lenient.Object(a.Body)
	return lenient.Text(cmp.Or(lenient.String(fields["error"]), lenient.String(fields["message"])), 300)
}

// Err returns nil for 2xx. Otherwise it returns that the server refused or failed an action such as "the registration", with a code of
// RemoteConfig.Codes.
func (a *Response) Err(action string) error {
	if a.OK() {
		return nil
	}
	verb, detail := "refused", cmp.Or(a.ErrorText(), http.StatusText(a.Status))
	if a.Status >= 500 {
		verb = "failed"
	}
	if a.Status == http.StatusUnauthorized && a.remote.cfg.KeyHint != "" {
		detail += "; " + a.remote.cfg.KeyHint
	}
	return muster.Errorf(cmp.Or(a.remote.cfg.Codes[a.Status], muster.Unavailable), "%s %s %s (HTTP %d): %s", a.remote.cfg.Name, verb, action, a.Status, detail)
}

// Call sends body as JSON unless it is nil, and returns the answer. It is Unavailable without an answer within timeout; then the Response is
// empty, and not nil.
func (r *Remote) Call(ctx context.Context, method, path string, body any, timeout time.Duration) (*Response, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var data []byte
	if body != nil {
		var err error
		if data, err = json.Marshal(body); err != nil {
			return &Response{remote: r}, muster.Errorf(muster.Invalid, "cannot encode the request: %w", err)
		}
	}
	resp, err := r.Do(ctx, method, path, "application/json", bytes.NewReader(data), int64(len(data))) //nolint:bodyclose // Read closes it
	if err != nil {
		return &Response{remote: r}, err
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
	req.Header = r.cfg.Header.Clone()
	req.Header.Set("Content-Type", contentType)
	resp, err := r.http.Do(req)
	if err != nil {
		if e, ok := errors.AsType[*url.Error](err); ok {
			err = e.Err // without the URL, which may contain a key
		}
		return nil, muster.Errorf(muster.Unavailable, "%s at %s does not answer: %w", r.cfg.Name, r.Origin(), err)
	}
	return resp, nil
}

// Read reads a response and closes its body.
func (r *Remote) Read(resp *http.Response) (*Response, error) {
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxResponse+1))
	if err == nil && len(body) > maxResponse {
		err = errors.New("it has more than 50 MiB")
	}
	if err != nil {
		return &Response{remote: r}, muster.Errorf(muster.Unavailable, "cannot read the answer of %s at %s: %w", r.cfg.Name, r.Origin(), err)
	}
	return &Response{Status: resp.StatusCode, Body: body, RetryAfter: min(backoff.RetryAfter(resp.Header, time.Now()), 24*time.Hour), remote: r}, nil
}

// FileForm returns a multipart body with one file of size bytes, its content type and its length.
func FileForm(field, name, contentType string, file io.Reader, size int64) (body io.Reader, formType string, length int64, err error) {
	var head bytes.Buffer
	form := multipart.NewWriter(&head)
	part := textproto.MIMEHeader{"Content-Disposition": {multipart.FileContentDisposition(field, name)}, "Content-Type": {contentType}}
	if _, err := form.CreatePart(part); err != nil {
		return nil, "", 0, muster.Errorf(muster.Internal, "cannot encode the form for %s: %w", name, err)
	}
	tail := "\r\n--" + form.Boundary() + "--\r\n"
	length = int64(head.Len()) + size + int64(len(tail))
	return io.MultiReader(&head, file, strings.NewReader(tail)), form.FormDataContentType(), length, nil
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
