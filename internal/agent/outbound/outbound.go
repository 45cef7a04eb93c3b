// Package outbound fetches URLs that users name, for a worker and its helper programs: by HTTP, and only from public addresses unless the
// worker's owner allows others, so that no job reaches hosts behind the worker's firewall.
package outbound

import (
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"syscall"
	"time"
)

// Transport returns a transport that connects only to public addresses, unless private ones are allowed. The address is checked when the
// connection is made, so that neither a redirect nor a changed DNS record bypasses the check. A proxy of the environment is used only if
// private addresses are allowed, since it could reach them.
func Transport(allowPrivate bool) *http.Transport {
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
		dialer.Control = denyPrivate
	}
	return transport
}

// DeniedError is a policy's refusal to follow a URL. A retry fails too.
type DeniedError struct{ reason string }

func (e *DeniedError) Error() string { return e.reason }

func denyPrivate(_, address string, _ syscall.RawConn) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil || !IsPublic(ap.Addr()) {
		return &DeniedError{"the address " + address + " is not public: allow it on the worker with --allow-private-addresses"}
	}
	return nil
}

// IsPublic reports whether an address belongs to the public internet.
func IsPublic(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	if !a.IsGlobalUnicast() || a.IsPrivate() {
		return false
	}
	// Ranges that netip does not call private: shared, documentation, benchmarking, reserved, and IPv6 forms that carry an IPv4 address.
	for _, p := range []string{
		"0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4",
		"192.88.99.0/24", "::/8", "100::/64", "2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20", "5f00::/16", "fec0::/10",
	} {
		if netip.MustParsePrefix(p).Contains(a) {
			return false
		}
	}
	return true
}

// Redirects returns a CheckRedirect that follows at most limit redirects, to http and https URLs. With limit 0 the redirect is the response.
// Another host does not receive the request's headers, which may contain keys.
func Redirects(limit int) func(req *http.Request, via []*http.Request) error {
	return func(req *http.Request, via []*http.Request) error {
		if limit == 0 {
			return http.ErrUseLastResponse
		}
		if len(via) > limit {
			return &DeniedError{fmt.Sprintf("it redirects more than %d times", limit)}
		}
		if req.URL.Host != via[0].URL.Host {
			maps.DeleteFunc(req.Header, func(name string, _ []string) bool { return name != "User-Agent" && name != "Content-Type" })
		}
		return CheckScheme(req.URL)
	}
}

// CheckScheme returns a DeniedError unless u is an http or https URL with a host.
func CheckScheme(u *url.URL) error {
	if u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return &DeniedError{u.Redacted() + " is not an http or https URL"}
	}
	return nil
}

// ExceptServer returns a RoundTripper that is next, except for signed URLs of artifacts on the server with a URL, whose address may be private: it
// reads them over own. "" is no server.
func ExceptServer(server string, own, next http.RoundTripper) http.RoundTripper {
	u, err := url.Parse(server)
	if err != nil || u.Host == "" {
		return next
	}
	return &exceptServer{scheme: u.Scheme, host: u.Host, own: own, next: next}
}

type exceptServer struct {
	scheme, host string
	own, next    http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t *exceptServer) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme == t.scheme && r.URL.Host == t.host && r.Method == http.MethodGet && r.URL.Query().Has("signature") {
		return t.own.RoundTrip(r)
	}
	return t.next.RoundTrip(r)
}
