package serverd

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path/filepath"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/certs"
	"github.com/muster-dev/muster/internal/connlimit"
)

// tlsDir is the directory of the certificate authority, in the data directory.
const tlsDir = "tls"

// enableTLS serves the port with TLS, if it is configured. Connections within the process have none.
func (s *Server) enableTLS() error {
	if !s.cfg.TLS.Enabled() || s.listener == nil {
		return nil
	}
	var err error
	if s.certs, err = certs.Open(s.cfg.TLS, filepath.Join(s.cfg.Data, tlsDir), s.log); err != nil {
		return err
	}
	s.listener = tls.NewListener(s.listener, s.certs.TLSConfig())
	return nil
}

// listenForChallenges opens the port without TLS at which an ACME authority verifies names.
func (s *Server) listenForChallenges(ctx context.Context, limiter *connlimit.Limiter) error {
	address := s.cfg.TLS.ACME.Challenge
	if address == "" {
		return nil
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return muster.Errorf(muster.Invalid, "cannot listen on %s, the address of --acme-http: %w", address, err)
	}
	s.challenges = limiter.Listen(listener)
	return nil
}

// challengeServer returns the server of that port.
func (s *Server) challengeServer() *http.Server {
	return &http.Server{
		Handler: connlimit.Handler(s.certs.Challenges(s.cfg.URL)), ConnContext: connlimit.ConnContext, ErrorLog: s.http.ErrorLog,
		ReadHeaderTimeout: s.http.ReadHeaderTimeout, ReadTimeout: s.http.ReadHeaderTimeout, IdleTimeout: s.http.ReadHeaderTimeout, MaxHeaderBytes: 8 << 10,
	}
}

// TLS reports whether the port is served with TLS.
func (s *Server) TLS() bool { return s.certs != nil }

// Unencrypted describes the listeners without TLS that other machines can reach.
func (s *Server) Unencrypted() []string {
	var open []string
	if s.listener != nil && !s.TLS() && !IsLoopback(s.cfg.Listen) {
		open = append(open, "the server ("+s.cfg.Listen+")")
	}
	for _, g := range s.gateways {
		if !g.config.TLS && !IsLoopback(g.config.Address) {
			open = append(open, fmt.Sprintf("the gateway %s (%s)", g.config.Name, g.config.Address))
		}
	}
	return open
}

// Pin returns the fingerprint of the server's own certificate authority, "" if it has none.
func (s *Server) Pin() string {
	if s.certs == nil {
		return ""
	}
	return s.certs.Pin()
}

// TLSServerName returns the name that a client of URL must verify in place of the URL's host, "" for that host.
func (s *Server) TLSServerName() string {
	u, err := url.Parse(s.URL())
	if s.certs == nil || err != nil {
		return ""
	}
	return s.certs.NameFor(u.Hostname())
}

// withPin appends the fingerprint of the authority to a token, in place of one that it has.
func (s *Server) withPin(token string) string {
	token, _ = auth.SplitToken(token)
	return auth.WithPin(token, s.Pin())
}

// strictTransport lets browsers use TLS only for 30 days after each answer, with a public certificate: one of the server's own authority would
// lock out browsers that do not trust it any more, since HSTS forbids exceptions.
func (s *Server) strictTransport(next http.Handler) http.Handler {
	if s.certs == nil || s.cfg.TLS.Own {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.TLS != nil { // not within this process
			w.Header().Set("Strict-Transport-Security", "max-age=2592000")
		}
		next.ServeHTTP(w, r)
	})
}

// AuthorityPath is where a server with its own certificate authority serves the authority's certificate.
const AuthorityPath = "/ca.crt"

// serveAuthority adds AuthorityPath to a handler.
func (s *Server) serveAuthority(next http.Handler) http.Handler {
	if s.certs == nil || s.certs.Pin() == "" {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != AuthorityPath || r.Method != http.MethodGet && r.Method != http.MethodHead {
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/x-pem-file")
		w.Header().Set("Content-Disposition", `attachment; filename="muster-ca.crt"`)
		_, _ = w.Write(s.certs.Authority()) // the client has gone
	})
}
