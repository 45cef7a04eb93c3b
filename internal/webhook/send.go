package webhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"syscall"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/outbound"
	"github.com/muster-dev/muster/internal/backoff"
	"github.com/muster-dev/muster/internal/store"
)

const (
	attemptTimeout = 10 * time.Second // for one attempt, including the response
	maxResponse    = 64 << 10         // bytes that are read of a response
	minBackoff     = 5 * time.Second
	maxBackoff     = 2 * time.Hour
	maxAge         = 24 * time.Hour
)

// permanentError is an error for which a retry is useless.
type permanentError struct{ reason string }

func (e *permanentError) Error() string { return e.reason }

// newClient returns the client of all attempts, and whether it may connect to any address. It checks the address when it connects, so that
// DNS rebinding cannot bypass the check. It uses a proxy only if all addresses are allowed, because a proxy could reach any.
func newClient(allow []netip.Prefix) (client *http.Client, allowAny bool) {
	dialer := &net.Dialer{Timeout: attemptTimeout}
	transport := &http.Transport{
		DialContext: dialer.DialContext, ForceAttemptHTTP2: true, TLSHandshakeTimeout: attemptTimeout, ResponseHeaderTimeout: attemptTimeout,
		MaxIdleConns: maxAttempts, MaxIdleConnsPerHost: maxAttemptsPerHost, IdleConnTimeout: attemptTimeout, MaxResponseHeaderBytes: maxResponse,
	}
	contains := func(zero string) bool { return slices.Contains(allow, netip.MustParsePrefix(zero)) }
	allowAny = contains("0.0.0.0/0") && contains("::/0")
	if allowAny {
		transport.Proxy = http.ProxyFromEnvironment
	} else {
		dialer.Control = func(_, address string, _ syscall.RawConn) error { return checkAddress(address, allow) }
	}
	return &http.Client{
		Transport: transport, Timeout: attemptTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, allowAny
}

func checkAddress(address string, allow []netip.Prefix) error {
	if ap, err := netip.ParseAddrPort(address); err != nil || !addressAllowed(ap.Addr(), allow) {
		return errNotPublic
	}
	return nil
}

func addressAllowed(ip netip.Addr, allow []netip.Prefix) bool {
	ip = ip.Unmap().WithZone("")
	return outbound.IsPublic(ip) || slices.ContainsFunc(allow, func(p netip.Prefix) bool { return p.Contains(ip) })
}

// attempt sends a delivery once and returns its new state.
func (w *Sender) attempt(ctx context.Context, d store.Delivery) store.Delivery {
	start := time.Now()
	status, wait, err := w.send(ctx, &d, start)
	now := time.Now()
	d.Attempts++
	d.AttemptedAt, d.Latency, d.Status, d.Error = muster.NewTime(start), muster.Duration(now.Sub(start)), status, ""
	if err == nil {
		d.Delivered, d.NextAt, d.FinishedAt = true, 0, muster.NewTime(now)
		return d
	}
	d.Error = truncate(err.Error(), 2*maxText)
	next := muster.NewTime(now.Add(max(retryPause(d.Attempts, rand.Float64()), wait))) //nolint:gosec // jitter is no secret
	_, permanent := errors.AsType[*permanentError](err)
	if last := d.CreatedAt.Add(muster.Duration(maxAge)); permanent || next > last {
		d.NextAt, d.FinishedAt = 0, muster.NewTime(now)
		if !permanent {
			d.Error += fmt.Sprintf("; given up after %d attempts in %s", d.Attempts, formatDuration(muster.Duration(maxAge)))
		}
		return d
	}
	d.NextAt = next
	return d
}

// retryPause returns the pause after the given number of attempts; jitter is from 0 to 1.
func retryPause(attempts int, jitter float64) time.Duration {
	delay := maxBackoff
	if shift := attempts - 1; shift < 20 {
		delay = min(minBackoff<<shift, maxBackoff)
	}
	return time.Duration(float64(delay) * (0.75 + jitter/2))
}

// send sends one request. retryDelay is the receiver's Retry-After in case of an error.
func (w *Sender) send(ctx context.Context, d *store.Delivery, now time.Time) (status int, retryDelay time.Duration, err error) {
	address, secrets, err := w.unsealDelivery(d)
	if err != nil {
		return 0, 0, &permanentError{err.Error()}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(d.Body))
	if err != nil {
		return 0, 0, &permanentError{"cannot create the request: " + w.redactError(err).Error()}
	}
	if ip, err := netip.ParseAddr(req.URL.Hostname()); err == nil && !w.allowAny && !addressAllowed(ip, w.cfg.Allow) {
		return 0, 0, &permanentError{errNotPublic.Error()} // the address will not change
	}
	for name, value := range d.Headers {
		req.Header.Set(name, value)
	}
	req.Header.Set("User-Agent", "Muster/"+w.cfg.Version)
	if err := sign(req.Header, secrets, d.Message, now, d.Body); err != nil {
		return 0, 0, &permanentError{err.Error()}
	}
	resp, err := w.client.Do(req)
	if err != nil {
		return 0, 0, w.redactError(err)
	}
	defer func() { _ = resp.Body.Close() }() // it was only read
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxResponse))
	switch code := resp.StatusCode; {
	case code >= 200 && code < 300:
		return code, 0, nil // delivered, even if reading the response failed
	case code == http.StatusGone:
		return code, 0, &permanentError{"HTTP 410: the receiver is gone"}
	case code >= 300 && code < 400:
		return code, 0, fmt.Errorf("HTTP %d: redirects are not followed", code)
	case err != nil || len(body) == 0:
		return code, min(backoff.RetryAfter(resp.Header, now), maxBackoff), fmt.Errorf("HTTP %d %s", code, http.StatusText(code))
	default:
		return code, min(backoff.RetryAfter(resp.Header, now), maxBackoff), fmt.Errorf("HTTP %d: %s", code, truncate(string(body), maxText))
	}
}

// unsealDelivery returns the URL of a delivery, and the secrets that sign it.
func (w *Sender) unsealDelivery(d *store.Delivery) (address string, secrets []string, err error) {
	if address, err = w.keys.unsealURL(d.URL); err != nil {
		return "", nil, err
	}
	if d.Secret == "" {
		secrets, err = w.keys.projectSecrets(d.Project)
		return address, secrets, err
	}
	secret, err := w.keys.unsealSecret(d.Secret, address)
	return address, []string{secret}, err
}

// errNotPublic is the error for unknown hosts and for those with private addresses, so that the delivery
// log does not reveal which names exist in the server's network.
var errNotPublic = errors.New("the host is not known or has no public address: the operator may allow others with muster server --webhook-allow")

// redactError removes the URL, which may contain a secret, and addresses of the server's network from an error of the client.
func (w *Sender) redactError(err error) error {
	dns, unknown := errors.AsType[*net.DNSError](err)
	switch {
	case errors.Is(err, errNotPublic), unknown && !w.allowAny:
		return errNotPublic
	case unknown: // without the address of the server's resolver
		return fmt.Errorf("the host %s: %s", dns.Name, dns.Err)
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		if e.Timeout() {
			return fmt.Errorf("no response within %s", attemptTimeout)
		}
		return e.Err
	}
	return err
}
