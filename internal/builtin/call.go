package builtin

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/muster-dev/muster/internal/agent/outbound"
	"github.com/muster-dev/muster/internal/backoff"
)

type caller struct {
	client *http.Client
	in     *apiInput
}

// callRecord is the result of a call: a line of responses.jsonl.
type callRecord struct {
	N       int               `json:"n"`       // from 1, in the order of the calls
	Request int               `json:"request"` // index in requests
	Method  string            `json:"method"`
	URL     string            `json:"url"` // without user and query, which may be secret
	Status  int               `json:"status,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
	Body    string            `json:"body,omitempty"`
	Binary  []byte            `json:"body_base64,omitempty"` // instead of body if it is not text
	Cut     bool              `json:"body_cut,omitempty"`
	Bytes   int64             `json:"bytes"`
	Latency float64           `json:"latency_ms"` // of the last try, including the body
	Tries   int               `json:"tries"`
	Error   *callError        `json:"error,omitempty"`
}

type callError struct {
	Class      string        `json:"class"`
	Message    string        `json:"message"`
	retryable  bool          // another try may succeed
	retryAfter time.Duration // requested by the server
}

// The classes of failures.
const (
	classStatus   = "status"     // unexpected
	classJSON     = "json"       // unexpected
	classTooLarge = "too large"  // exceeds max_response
	classTimeout  = "timeout"    // of a try, or of all calls
	className     = "name"       // the host name cannot be resolved
	classConnect  = "connection" // failed or broken
	classTLS      = "tls"        // such as an untrusted certificate
	classRefused  = "refused"    // by this worker's policy
)

var errTotal = errors.New("the total time is over")

const (
	initialBackoff = 500 * time.Millisecond
	maxBackoff     = 30 * time.Second
	maxRetryAfter  = 5 * time.Minute // of Retry-After; a longer one fails the call
)

// call makes a call. It returns nil if ctx ended before it began.
func (c *caller) call(ctx context.Context, n int, q *request) *callRecord {
	var a *callRecord
	for try := 1; ; try++ {
		if ctx.Err() != nil {
			return a
		}
		a = c.try(ctx, q)
		a.Request, a.Tries = n, try
		if a.Error == nil || !a.Error.retryable || try > c.in.Retries || a.Error.retryAfter > maxRetryAfter {
			return a
		}
		wait := min(initialBackoff<<min(try-1, 10), maxBackoff)
		wait = max(wait/2+rand.N(wait/2), a.Error.retryAfter) //nolint:gosec // no secret
		if backoff.Sleep(ctx, wait) != nil {
			return a
		}
	}
}

func (c *caller) try(ctx context.Context, q *request) *callRecord {
	a := &callRecord{Method: q.Method}
	ctx, cancel := context.WithTimeout(ctx, c.in.Timeout.Std())
	defer cancel()
	var body io.Reader = http.NoBody
	switch {
	case q.JSON != nil:
		body = bytes.NewReader(q.JSON)
	case q.Body != nil:
		body = strings.NewReader(*q.Body)
	}
	req, err := http.NewRequestWithContext(ctx, q.Method, q.URL, body)
	if err != nil {
		a.Error = &callError{Class: classRefused, Message: err.Error()}
		return a
	}
	a.URL = redactURL(req.URL)
	req.Header.Set("User-Agent", "muster")
	if q.JSON != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for name, v := range q.Headers {
		if strings.EqualFold(name, "Host") {
			req.Host = v
			continue
		}
		req.Header.Set(name, v)
	}
	start := time.Now()
	defer func() { a.Latency = milliseconds(time.Since(start)) }()
	resp, err := c.client.Do(req)
	if err != nil {
		a.Error = c.classify(ctx, q, err)
		return a
	}
	defer resp.Body.Close()
	a.Status = resp.StatusCode
	a.Headers = map[string]string{}
	for name, vs := range resp.Header {
		if name != "Set-Cookie" { // it is a credential
			a.Headers[name] = strings.Join(vs, ", ")
		}
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, c.in.MaxResponse+1))
	a.Bytes = int64(len(text))
	a.setBody(text, c.in.KeepBody)
	switch {
	case err != nil:
		a.Error = c.classify(ctx, q, err)
	case a.Bytes > c.in.MaxResponse:
		a.Error = &callError{Class: classTooLarge, Message: fmt.Sprintf("the answer is larger than max_response, %d bytes", c.in.MaxResponse)}
	default:
		a.Error = q.Expect.check(resp, text, q.Method)
	}
	return a
}

func redactURL(u *url.URL) string {
	s := *u
	s.User, s.RawQuery, s.Fragment = nil, "", ""
	text := s.String()
	if u.RawQuery != "" {
		text += "?…"
	}
	return text
}

// setBody stores the beginning of a body.
func (a *callRecord) setBody(text []byte, maxLen int) {
	if len(text) > maxLen {
		text, a.Cut = text[:maxLen], true
		for i := 0; i < utf8.UTFMax && len(text) > 0 && !utf8.Valid(text); i++ { // a character was cut
			if r, _ := utf8.DecodeLastRune(text); r != utf8.RuneError {
				break
			}
			text = text[:len(text)-1]
		}
	}
	if utf8.Valid(text) {
		a.Body = string(text)
	} else {
		a.Binary = text
	}
}

func (c *caller) classify(ctx context.Context, q *request, err error) *callError {
	if in, ok := errors.AsType[*url.Error](err); ok {
		err = in.Err // its own text contains the URL with its query
	}
	e := &callError{Class: classConnect, Message: err.Error(), retryable: idempotent(q.Method)}
	if _, ok := errors.AsType[*net.OpError](err); ok && strings.HasPrefix(err.Error(), "dial ") {
		e.retryable = true // nothing was sent
	}
	if refused, ok := errors.AsType[*outbound.DeniedError](err); ok {
		return &callError{Class: classRefused, Message: refused.Error()}
	}
	if name, ok := errors.AsType[*net.DNSError](err); ok {
		return &callError{Class: className, Message: fmt.Sprintf("cannot resolve the name %s", name.Name), retryable: name.IsTemporary || name.IsTimeout}
	}
	var unknown x509.UnknownAuthorityError
	if errors.As(err, new(*tls.CertificateVerificationError)) || errors.As(err, &unknown) || errors.As(err, new(tls.RecordHeaderError)) {
		e.Class, e.retryable = classTLS, false
	}
	switch timeout, ok := errors.AsType[net.Error](err); {
	case errors.Is(context.Cause(ctx), errTotal):
		return &callError{Class: classTimeout, Message: errTotal.Error()}
	case errors.Is(err, context.DeadlineExceeded), ok && timeout.Timeout():
		e.Class, e.Message = classTimeout, fmt.Sprintf("no whole answer within %s", c.in.Timeout)
	}
	return e
}

// idempotent reports whether a call can be repeated that may have been processed.
func idempotent(method string) bool {
	return slices.Contains([]string{http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodPut, http.MethodDelete, http.MethodTrace}, method)
}

// check compares an answer with what is expected.
func (x *expect) check(resp *http.Response, text []byte, method string) *callError {
	status := resp.StatusCode
	ok := status >= 200 && status < 300
	if len(x.Status) > 0 {
		ok = slices.Contains(x.Status, status)
	}
	if !ok {
		e := &callError{Class: classStatus, Message: "it answers " + resp.Status}
		// 429 and 503 mean that the request was not processed.
		e.retryable = status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable || status >= 500 && idempotent(method)
		e.retryAfter = backoff.RetryAfter(resp.Header, time.Now())
		return e
	}
	if x.JSON == nil {
		return nil
	}
	want, err := decodeJSON(x.JSON)
	if err != nil {
		return &callError{Class: classJSON, Message: "expect.json: " + err.Error()}
	}
	got, err := decodeJSON(text)
	if err != nil {
		return &callError{Class: classJSON, Message: "the answer is not JSON: " + err.Error()}
	}
	if diff := diffJSON(want, got, ""); diff != "" {
		return &callError{Class: classJSON, Message: "unexpected answer: " + diff}
	}
	return nil
}

func decodeJSON(text []byte) (any, error) {
	var v any
	err := json.Unmarshal(text, &v)
	return v, err
}

// diffJSON describes the first difference of got from want, "" if got has all that want has.
func diffJSON(want, got any, path string) string {
	if w, ok := want.(map[string]any); ok {
		g, ok := got.(map[string]any)
		if !ok {
			return pathText(path) + " is not an object"
		}
		for name, v := range w {
			gotValue, ok := g[name]
			if !ok {
				return pathText(path+"."+name) + " is missing"
			}
			if diff := diffJSON(v, gotValue, path+"."+name); diff != "" {
				return diff
			}
		}
		return ""
	}
	if reflect.DeepEqual(want, got) {
		return ""
	}
	w, _ := json.Marshal(want) // cannot fail: it was decoded
	g, _ := json.Marshal(got)
	return fmt.Sprintf("%s is %s, not %s", pathText(path), shorten(string(g), 80), shorten(string(w), 80))
}

func pathText(path string) string {
	if path == "" {
		return "it"
	}
	return strings.TrimPrefix(path, ".")
}
