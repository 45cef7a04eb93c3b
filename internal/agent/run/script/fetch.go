package script

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
)

const (
	maxScript    = 16 << 20
	fetchTimeout = 60 * time.Second
	maxRedirects = 5
)

// fetcher gets scripts by URL.
type fetcher struct{ client *http.Client }

// newFetcher returns a fetcher that, unless private ones are allowed, connects to
// public addresses only: the address is checked when it is connected to, so that
// neither a redirect nor a name that changes its address gets around it. A proxy of
// the environment is used only if private addresses are allowed, for it could
// reach them.
func newFetcher(allowPrivate bool) *fetcher {
	dialer := &net.Dialer{Timeout: 15 * time.Second}
	transport := &http.Transport{
		DialContext:           dialer.DialContext,
		TLSHandshakeTimeout:   15 * time.Second,
		ResponseHeaderTimeout: 30 * time.Second,
		IdleConnTimeout:       10 * time.Second,
		MaxIdleConns:          4,
	}
	if allowPrivate {
		transport.Proxy = http.ProxyFromEnvironment
	} else {
		dialer.Control = refusePrivate
	}
	return &fetcher{&http.Client{Transport: transport, CheckRedirect: checkRedirect, Timeout: fetchTimeout}}
}

// refusedError says why this worker does not go where a URL leads.
type refusedError struct{ why string }

func (e *refusedError) Error() string { return e.why }

func refusePrivate(_, address string, _ syscall.RawConn) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil || !public(ap.Addr()) {
		return &refusedError{"the address " + address + " is not public: allow it on the worker with --allow-private-addresses"}
	}
	return nil
}

// public reports whether an address is one of the open internet.
func public(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	if !a.IsGlobalUnicast() || a.IsPrivate() {
		return false
	}
	// What netip does not call private: shared, documentation, benchmarking,
	// reserved, and the forms of IPv6 that carry an IPv4 address.
	for _, p := range []string{
		"0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4",
		"64:ff9b::/96", "64:ff9b:1::/48", "2001::/32", "2001:db8::/32", "2002::/16", "fec0::/10",
	} {
		if netip.MustParsePrefix(p).Contains(a) {
			return false
		}
	}
	return true
}

func checkRedirect(req *http.Request, via []*http.Request) error {
	if len(via) > maxRedirects {
		return &refusedError{fmt.Sprintf("it redirects more than %d times", maxRedirects)}
	}
	return checkScheme(req.URL)
}

func checkScheme(u *url.URL) error {
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return &refusedError{u.Redacted() + " is not an http or https URL"}
	}
	return nil
}

// get returns what the URL delivers, which must have the SHA-256 if one is given.
func (f *fetcher) get(ctx context.Context, rawURL, wantHash string) ([]byte, error) {
	u, err := url.Parse(rawURL)
	if err == nil {
		err = checkScheme(u)
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
		if _, ok := errors.AsType[*refusedError](err); ok {
			reason = muster.TaskInvalid // another try would meet the same
		}
		if in, ok := errors.AsType[*url.Error](err); ok {
			err = in.Err // its own text repeats the URL
		}
		return nil, run.Failf(reason, "the script cannot be fetched from %s: %w", u.Redacted(), err)
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode >= 500 || resp.StatusCode == http.StatusTooManyRequests:
		return nil, run.Failf(muster.FetchFailed, "the script cannot be fetched: %s answers %s", u.Redacted(), resp.Status)
	case resp.StatusCode != http.StatusOK:
		return nil, run.Failf(muster.TaskInvalid, "the script cannot be fetched: %s answers %s", u.Redacted(), resp.Status)
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxScript+1))
	if err != nil {
		return nil, run.Failf(muster.FetchFailed, "the script cannot be fetched: %w", err)
	}
	if len(text) > maxScript {
		return nil, run.Failf(muster.TaskInvalid, "the script at %s is larger than %s", u.Redacted(), muster.Size(maxScript))
	}
	sum := sha256.Sum256(text)
	if got := hex.EncodeToString(sum[:]); wantHash != "" && !strings.EqualFold(got, wantHash) {
		return nil, run.Failf(muster.TaskInvalid, "the script at %s has the SHA-256 %s, not the %s that the spec names", u.Redacted(), got, wantHash)
	}
	return text, nil
}

func urlPath(rawURL string) string {
	u, err := url.Parse(rawURL)
	if err != nil {
		return ""
	}
	return u.Path
}
