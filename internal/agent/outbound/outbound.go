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

// Transport returns one that, unless private addresses are allowed, connects to
// public ones only: the address is checked when it is connected to, so that
// neither a redirect nor a name that changes its address gets around it. A proxy of
// the environment is used only if private addresses are allowed, for it could
// reach them.
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

// DeniedError says why this worker does not go where a URL leads. Another try meets the same.
type DeniedError struct{ reason string }

func (e *DeniedError) Error() string { return e.reason }

func denyPrivate(_, address string, _ syscall.RawConn) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil || !IsPublic(ap.Addr()) {
		return &DeniedError{"the address " + address + " is not public: allow it on the worker with --allow-private-addresses"}
	}
	return nil
}

// IsPublic reports whether an address is one of the open internet.
func IsPublic(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	if !a.IsGlobalUnicast() || a.IsPrivate() {
		return false
	}
	// What netip does not call private: shared, documentation, benchmarking,
	// reserved, and the forms of IPv6 that carry an IPv4 address.
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

// Redirects returns a CheckRedirect that follows at most so many, to http and https URLs. With none the redirect itself is the answer. Another
// host gets no header that the first one was meant to have: keys are in them.
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

// CheckScheme refuses what is no http or https URL of a host.
func CheckScheme(u *url.URL) error {
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return &DeniedError{u.Redacted() + " is not an http or https URL"}
	}
	return nil
}
