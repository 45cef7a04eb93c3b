package certs

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/crypto/acme"
	"golang.org/x/crypto/acme/autocert"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/atomicfile"
	"github.com/muster-dev/muster/internal/backoff"
)

// ACME configures certificates of a public authority, which connects to port 443 of each domain to verify it (tls-alpn-01, RFC 8737), or
// to port 80 (http-01, RFC 8555) if that fails and there is a Challenges handler.
type ACME struct {
	Domains   []string
	Email     string        // for messages of the authority; may be ""
	Directory string        // URL; "" means Let's Encrypt
	Challenge string        // address of the port without TLS for http-01, such as :80; "" for none
	HTTP      *http.Client  // for requests to the authority; nil means a default one
	Renewal   time.Duration // before a certificate's end; 0 means 30 days
	Retry     time.Duration // the first pause after a failure, which doubles up to an hour; 0 means a minute
}

// acmeDir is the directory of the account's key and of the certificates, in the directory of Open.
const acmeDir = "acme"

const (
	checkInterval = 12 * time.Hour      // of Run
	lateRenewal   = 14 * 24 * time.Hour // a certificate with less time is reported
	retryMax      = time.Hour           // between two tries
)

func (c *Certs) openACME() error {
	a := &c.cfg.ACME
	if a.Directory == "" {
		a.Directory = acme.LetsEncryptURL
	}
	c.ends = map[string]time.Time{}
	for _, domain := range a.Domains {
		c.ends[domain] = time.Time{}
	}
	c.manager = &autocert.Manager{
		Prompt: autocert.AcceptTOS, Cache: cache{autocert.DirCache(filepath.Join(c.dir, acmeDir))}, HostPolicy: c.allowDomain,
		RenewBefore: a.Renewal, Email: a.Email,
		Client: &acme.Client{DirectoryURL: a.Directory, HTTPClient: a.HTTP, UserAgent: "muster"},
	}
	return c.makeUnnamed()
}

// allowDomain allows the domains, also with a port: autocert passes the Host header of challenges as it is.
func (c *Certs) allowDomain(_ context.Context, name string) error {
	if !c.isDomain(name) {
		return muster.Errorf(muster.Forbidden, "%q is none of the names of --acme", name)
	}
	return nil
}

// isDomain reports whether a Host header names one of the domains of ACME.
func (c *Certs) isDomain(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return slices.ContainsFunc(c.cfg.ACME.Domains, func(d string) bool { return strings.EqualFold(d, host) })
}

// Challenges returns the handler of port 80, which answers the challenges of the authority (http-01). It redirects other requests for the
// domains to base, or to port 443 of the domain if base is "". It is called before Run.
func (c *Certs) Challenges(base string) http.Handler {
	return c.manager.HTTPHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !c.isDomain(r.Host) || r.Method != http.MethodGet && r.Method != http.MethodHead {
			http.Error(w, "use https", http.StatusNotFound)
			return
		}
		target := url.URL{Path: r.URL.Path, RawPath: r.URL.RawPath, RawQuery: r.URL.RawQuery}
		if to, err := url.Parse(base); err == nil && to.Host != "" {
			target.Host = to.Host
		} else {
			target.Host, _, _ = strings.Cut(r.Host, ":")
		}
		target.Scheme = "https"
		http.Redirect(w, r, target.String(), http.StatusPermanentRedirect)
	}))
}

// cache writes files that are whole after a crash.
type cache struct{ autocert.DirCache }

// Put implements autocert.Cache.
func (c cache) Put(_ context.Context, name string, data []byte) error {
	path := filepath.Join(string(c.DirCache), filepath.Base(name))
	if err := os.MkdirAll(string(c.DirCache), 0o700); err != nil {
		return err
	}
	return atomicfile.Write(path, data, 0o600)
}

// makeUnnamed makes the certificate for connections that name no domain: nobody trusts it, but a health check may ignore that.
func (c *Certs) makeUnnamed() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{SerialNumber: serial(), DNSNames: c.cfg.ACME.Domains, NotBefore: time.Now().Add(-backdated), NotAfter: time.Now().Add(authorityValidity)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return err
	}
	leaf, err := x509.ParseCertificate(der)
	c.current, c.leaf = &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, leaf
	return err
}

// acmeCertificate returns the certificate of the domain that a client names. The first time it waits for the authority.
func (c *Certs) acmeCertificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	if hello.ServerName == "" {
		return c.current, nil
	}
	return c.manager.GetCertificate(hello)
}

// Run obtains the certificates of ACME, which are renewed by themselves, and logs failures, until ctx ends. The server must accept
// connections. For other certificates it returns at once.
func (c *Certs) Run(ctx context.Context) error {
	if c.manager == nil {
		return nil
	}
	for ctx.Err() == nil {
		for _, domain := range c.cfg.ACME.Domains {
			_ = c.obtain(ctx, domain) // it fails only with ctx
		}
		_ = backoff.Sleep(ctx, checkInterval) // likewise
	}
	return nil
}

// obtain obtains the certificate of a domain. Its error is that of ctx.
func (c *Certs) obtain(ctx context.Context, domain string) error {
	pause := backoff.Backoff{Min: c.cfg.ACME.Retry, Max: retryMax}
	if pause.Min == 0 {
		pause.Min = time.Minute // autocert remembers a failure as long
	}
	for {
		type answer struct {
			cert *tls.Certificate
			err  error
		}
		got := make(chan answer, 1)
		// Not joined: autocert takes no context, and may wait for the authority for minutes.
		go func() {
			cert, err := c.manager.GetCertificate(&tls.ClientHelloInfo{ServerName: domain, CipherSuites: []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256}})
			got <- answer{cert, err}
		}()
		var cert *tls.Certificate
		var err error
		select {
		case a := <-got:
			cert, err = a.cert, a.err
		case <-ctx.Done():
			return ctx.Err()
		}
		if err == nil {
			c.report(domain, cert)
			return nil
		}
		c.log.Error("cannot obtain a certificate, trying again", slog.String("domain", domain), slog.Any("error", err))
		if err := pause.Wait(ctx); err != nil {
			return err
		}
	}
}

// report logs a certificate, as an error if it should have been renewed.
func (c *Certs) report(domain string, cert *tls.Certificate) {
	leaf := cert.Leaf
	if leaf == nil {
		return // autocert sets it
	}
	c.mu.Lock()
	c.ends[domain] = leaf.NotAfter
	c.mu.Unlock()
	attrs := []any{slog.String("domain", domain), slog.Time("not_after", leaf.NotAfter)}
	if c.cfg.ACME.Renewal == 0 && time.Until(leaf.NotAfter) < lateRenewal {
		c.log.Error("the certificate was not renewed", attrs...)
		return
	}
	c.log.Info("certificate", attrs...)
}

// CheckDomain returns an error unless a public authority may certify name.
func CheckDomain(name string) error {
	if !validName(name) || net.ParseIP(name) != nil || !strings.Contains(name, ".") || strings.Contains(name, "*") {
		return muster.Errorf(muster.Invalid, "%q is not a public host name: write one such as muster.example.com", name)
	}
	return nil
}
