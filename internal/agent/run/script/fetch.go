package script

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/outbound"
	"github.com/muster-dev/muster/internal/agent/run"
)

const (
	maxScript    = 16 << 20
	fetchTimeout = 60 * time.Second
	maxRedirects = 5
)

// fetcher fetches scripts by URL.
type fetcher struct{ client *http.Client }

// newFetcher returns a fetcher that connects to private addresses only with allowPrivate.
func newFetcher(allowPrivate bool) *fetcher {
	return &fetcher{&http.Client{Transport: outbound.Transport(allowPrivate), CheckRedirect: outbound.Redirects(maxRedirects), Timeout: fetchTimeout}}
}

// get returns the content of the URL. It fails if wantHash is set and is not its SHA-256.
func (f *fetcher) get(ctx context.Context, rawURL, wantHash string) ([]byte, error) {
	u, err := url.Parse(rawURL)
	if err == nil {
		err = outbound.CheckScheme(u)
	}
	if err != nil {
		return nil, run.Failf(muster.TaskInvalid, "script.url: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, rawURL, http.NoBody)
	if err != nil {
		return nil, run.Failf(muster.TaskInvalid, "script.url: %w", err)
	}
	resp, err := f.client.Do(req)
	if err != nil {
		reason := muster.FetchFailed
		if _, ok := errors.AsType[*outbound.DeniedError](err); ok {
			reason = muster.TaskInvalid // a retry would fail the same way
		}
		if urlErr, ok := errors.AsType[*url.Error](err); ok {
			err = urlErr.Err // its own text repeats the URL
		}
		return nil, run.Failf(reason, "fetch the script from %s: %w", u.Redacted(), err)
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode >= 500 || resp.StatusCode == http.StatusTooManyRequests:
		return nil, run.Failf(muster.FetchFailed, "fetch the script: %s returned %s", u.Redacted(), resp.Status)
	case resp.StatusCode != http.StatusOK:
		return nil, run.Failf(muster.TaskInvalid, "fetch the script: %s returned %s", u.Redacted(), resp.Status)
	}
	script, err := io.ReadAll(io.LimitReader(resp.Body, maxScript+1))
	if err != nil {
		return nil, run.Failf(muster.FetchFailed, "fetch the script: %w", err)
	}
	if len(script) > maxScript {
		return nil, run.Failf(muster.TaskInvalid, "the script at %s is larger than %s", u.Redacted(), muster.Size(maxScript))
	}
	sum := sha256.Sum256(script)
	if got := hex.EncodeToString(sum[:]); wantHash != "" && !strings.EqualFold(got, wantHash) {
		return nil, run.Failf(muster.TaskInvalid, "the script at %s has SHA-256 %s, but the spec requires %s", u.Redacted(), got, wantHash)
	}
	return script, nil
}

func urlPath(rawURL string) string {
	u, err := url.Parse(rawURL)
	if err != nil {
		return ""
	}
	return u.Path
}
