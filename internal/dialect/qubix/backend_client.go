package qubix

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/muster-dev/muster"
)

// backendClient is a QUBIX backend, as a worker sees it.
type backendClient struct {
	base      string
	http      *http.Client
	userAgent string
}

// response is one of a backend.
type response struct {
	status     int
	retryAfter time.Duration // of a 429: when to ask again; 0 if it does not say
	body       []byte
}

// newBackendClient checks a backend's address.
func newBackendClient(backend string, h *http.Client, userAgent string) (*backendClient, error) {
	u, err := url.Parse(strings.TrimRight(backend, "/"))
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, muster.Errorf(muster.Invalid, "--backend %q is no address: write such as http://127.0.0.1:3001", backend)
	}
	if h == nil {
		h = &http.Client{}
	}
	direct := *h
	direct.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse } // the TS backend's 301 leads nowhere
	return &backendClient{base: u.String(), http: &direct, userAgent: userAgent}, nil
}

// host is the backend's address without a key in its path.
func (b *backendClient) host() string {
	u, err := url.Parse(b.base)
	if err != nil {
		return b.base
	}
	return u.Scheme + "://" + u.Host
}

// send makes one request. Its errors are Unavailable: nobody answered.
func (b *backendClient) send(ctx context.Context, method, path string, body any, limit time.Duration) (response, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var r io.Reader
	if body != nil {
		j, err := json.Marshal(body)
		if err != nil {
			return response{}, muster.Errorf(muster.Invalid, "the request cannot be written as JSON: %w", err)
		}
		r = bytes.NewReader(j)
	}
	req, err := http.NewRequestWithContext(ctx, method, b.base+path, r)
	if err != nil {
		return response{}, muster.Errorf(muster.Invalid, "the request cannot be made: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", b.userAgent)
	resp, err := b.http.Do(req)
	if err != nil {
		if e, ok := errors.AsType[*url.Error](err); ok {
			err = e.Err // without the address, which may have a key
		}
		return response{}, muster.Errorf(muster.Unavailable, "the QUBIX backend at %s does not answer: %w", b.host(), err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxResponse+1))
	if err == nil && len(text) > maxResponse {
		err = errors.New("its answer has more than 50 MiB")
	}
	if err != nil {
		return response{}, muster.Errorf(muster.Unavailable, "the answer of the QUBIX backend at %s broke off: %w", b.host(), err)
	}
	a := response{status: resp.StatusCode, body: text}
	if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && seconds > 0 {
		a.retryAfter = min(time.Duration(seconds)*time.Second, 5*time.Minute)
	}
	return a, nil
}

// asError is what an answer says is wrong, as an error that says what can be done; nil for 2xx.
func (a *response) asError(action string) error {
	if a.status >= 200 && a.status < 300 {
		return nil
	}
	detail := a.errorText()
	if detail != "" {
		detail = ": " + detail
	}
	switch a.status {
	case http.StatusBadRequest, http.StatusUnprocessableEntity, http.StatusRequestEntityTooLarge:
		return muster.Errorf(muster.Invalid, "the QUBIX backend refuses the %s with status %d%s", action, a.status, detail)
	case http.StatusUnauthorized: // a key may be changed back: nothing is given up for it
		return muster.Errorf(muster.Unauthenticated, "the QUBIX backend answers the %s with status 401%s; a key is a part of --backend, http://HOST:3001/k/KEY", action, detail)
	case http.StatusForbidden:
		return muster.Errorf(muster.Forbidden, "the QUBIX backend answers the %s with status 403%s", action, detail)
	case http.StatusNotFound:
		return muster.Errorf(muster.NotFound, "the QUBIX backend answers the %s with status 404%s", action, detail)
	case http.StatusConflict:
		return muster.Errorf(muster.Conflict, "the QUBIX backend answers the %s with status 409%s", action, detail)
	case http.StatusInternalServerError:
		return muster.Errorf(muster.Internal, "the QUBIX backend answers the %s with status 500%s", action, detail)
	case http.StatusTooManyRequests:
		return muster.Errorf(muster.Unavailable, "the QUBIX backend takes no more requests for now (429): asking again in %s", max(a.retryAfter, time.Second))
	}
	return muster.Errorf(muster.Unavailable, "the QUBIX backend answers the %s with status %d%s", action, a.status, detail)
}

// errorText is the error in an answer's body, "" if it has none.
func (a *response) errorText() string {
	fields := jsonObject(a.body)
	for _, name := range []string{"error", "message"} {
		if s := textField(fields, name); s != "" {
			return sanitize(s, 300)
		}
	}
	return ""
}

// parseJobs reads a list of jobs. What is none is left aside.
func parseJobs(raw json.RawMessage) []job {
	var rows []json.RawMessage
	if json.Unmarshal(raw, &rows) != nil {
		return nil
	}
	var list []job
	for _, row := range rows[:min(len(rows), maxListedJobs)] {
		var j job
		if json.Unmarshal(row, &j) == nil && j.ID != "" {
			list = append(list, j)
		}
	}
	return list
}

// maxListedJobs is how many jobs of one answer are looked at: the mock server offers every job that there is.
const maxListedJobs = 1000
