package serverd

import (
	"net/http"
	"net/url"
	"slices"

	"github.com/muster-dev/muster/internal/browserguard"
)

// hosts are the names by which browsers reach this server and its gateways.
func (s *Server) hosts() browserguard.Hosts {
	names := slices.Concat(s.cfg.AllowHosts, s.cfg.TLS.Names, s.cfg.TLS.ACME.Domains)
	if u, err := url.Parse(s.cfg.URL); err == nil && s.cfg.URL != "" {
		names = append(names, u.Host)
	}
	return browserguard.NewHosts(names...)
}

// guardBrowsers refuses browsers that come by a name that is not this server's, if it knows its names: it is reached from this
// machine only, or was given them. Elsewhere the name does not matter: there is nothing here without a key, and a browser keeps its
// cookies for the name by which they came.
func (s *Server) guardBrowsers(next http.Handler) http.Handler {
	if s.cfg.URL == "" && len(s.cfg.AllowHosts) == 0 && len(s.cfg.TLS.ACME.Domains) == 0 && s.listener != nil && !IsLoopback(s.cfg.Listen) {
		return next
	}
	return s.hosts().Guard(next)
}
