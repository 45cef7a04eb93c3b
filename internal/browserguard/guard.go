// Package browserguard protects HTTP servers from what a page of another site can make a visitor's browser do: send requests
// (CSRF), read answers by a name that it lets point to this server (DNS rebinding), frame pages, or take a file for a script.
// Programs that are no browsers are not affected: they send no cookies and no keys that their user does not know of.
package browserguard

import (
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"

	"github.com/muster-dev/muster"
)

// contentSecurityPolicy is that of answers that are no pages: a browser that shows one runs and loads nothing.
const contentSecurityPolicy = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Headers sets the security headers of all answers. Handlers may replace them.
func Headers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", contentSecurityPolicy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY") // for browsers that do not know frame-ancestors
		h.Set("Referrer-Policy", "no-referrer")
		next.ServeHTTP(w, r)
	})
}

// FromBrowser reports whether a browser sent a request. Browsers name themselves and the kind and origin of requests that pages make.
// Firefox and Safari let a page change the name, and send no kind without TLS: every browser sends Accept-Language, which a page can
// change but not remove. Programs do not, except those on Node.js, which always send Sec-Fetch-Mode beside it; no page can.
func FromBrowser(r *http.Request) bool {
	h := r.Header
	_, language := h["Accept-Language"]
	return strings.HasPrefix(h.Get("User-Agent"), "Mozilla/") || h.Get("Sec-Fetch-Site") != "" || h.Get("Origin") != "" || h.Get("Cookie") != "" ||
		language && h.Get("Sec-Fetch-Mode") == ""
}

// Hosts are the names by which browsers reach a server.
type Hosts struct {
	names map[string]bool
}

// NewHosts returns hosts with these names beside addresses, localhost, names without a dot, and the name of this machine. A name that
// begins with a dot includes all names below it; ports are ignored.
func NewHosts(names ...string) Hosts {
	h := Hosts{names: map[string]bool{}}
	if own, err := os.Hostname(); err == nil {
		names = append(names, own, own+".local") // multicast DNS
	}
	for _, name := range names {
		if name = canonical(name); name != "" {
			h.names[name] = true
		}
	}
	return h
}

// canonical returns a host name in lower case, without a port and the dot at the end.
func canonical(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
}

// Contains reports whether a Host header names this server. No page of another site has an address or such a name: it would be
// this server's own.
func (h Hosts) Contains(host string) bool {
	name := canonical(host)
	if _, err := netip.ParseAddr(name); err == nil || name == "" || !strings.Contains(name, ".") || strings.HasSuffix(name, ".localhost") || h.names[name] {
		return true
	}
	for i := range name {
		if name[i] == '.' && h.names[name[i:]] {
			return true
		}
	}
	return false
}

// Check fails for a browser's request to a name that is not among hosts.
func (h Hosts) Check(r *http.Request) error {
	if !FromBrowser(r) || h.Contains(r.Host) {
		return nil
	}
	return muster.Errorf(muster.Forbidden, "this server is not known by the name %q: start it with --url http://%s or --allow-host %s if it is", canonical(r.Host), r.Host, canonical(r.Host))
}

// Guard answers a browser's request to a name that is not among hosts with 421, which means that this server is the wrong one.
func (h Hosts) Guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := h.Check(r); err != nil {
			http.Error(w, err.Error(), http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}
