package certs

import (
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"os"
	"slices"
	"time"

	"golang.org/x/crypto/acme"

	"github.com/muster-dev/muster"
)

// clientAuthorities are the authorities of the certificates that clients must present. Certs.mu guards them.
type clientAuthorities struct {
	pool   *x509.CertPool // nil without client certificates
	readAt time.Time      // when the file was last looked at
	stamp  fileState
	failed fileState
}

// loadClients reads the file of the clients' authorities, if there is one. The caller holds mu.
func (c *Certs) loadClients() error {
	data, err := os.ReadFile(c.cfg.ClientCA)
	if err != nil {
		return muster.Errorf(muster.Invalid, "cannot read the authorities of client certificates: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(data) {
		return muster.Errorf(muster.Invalid, "%s has no certificate in PEM: it must have the authorities of client certificates", c.cfg.ClientCA)
	}
	c.clients.pool = pool
	return nil
}

// openClients reads the file for the first time.
func (c *Certs) openClients() error {
	if c.cfg.ClientCA == "" {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clients.readAt, c.clients.stamp = time.Now(), statFile(c.cfg.ClientCA)
	return c.loadClients()
}

// currentClients returns the clients' authorities. A changed file that cannot be loaded is not used.
func (c *Certs) currentClients() *x509.CertPool {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if now.Sub(c.clients.readAt) < fileInterval {
		return c.clients.pool
	}
	c.clients.readAt = now
	stamp := statFile(c.cfg.ClientCA)
	if stamp == c.clients.stamp {
		return c.clients.pool
	}
	if err := c.loadClients(); err != nil {
		if stamp != c.clients.failed {
			c.log.Error("cannot load the changed authorities of client certificates; the previous ones are still used", slog.Any("error", err))
		}
		c.clients.failed = stamp
		return c.clients.pool
	}
	c.clients.stamp = stamp
	return c.clients.pool
}

// requireClients makes a configuration require client certificates. An ACME authority has none: its connections carry no requests.
func (c *Certs) requireClients(config *tls.Config) {
	challenge := config.Clone()
	challenge.NextProtos = []string{acme.ALPNProto}
	config.ClientAuth, config.VerifyConnection = tls.RequireAnyClientCert, c.verifyClient
	if c.manager != nil {
		config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			if slices.Equal(hello.SupportedProtos, challenge.NextProtos) {
				return challenge, nil
			}
			return nil, nil //nolint:nilnil // config
		}
	}
}

// verifyClient verifies the certificate of a client, also if it resumes a session.
func (c *Certs) verifyClient(s tls.ConnectionState) error {
	intermediates := x509.NewCertPool()
	for _, cert := range s.PeerCertificates[1:] {
		intermediates.AddCert(cert)
	}
	_, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: c.currentClients(), Intermediates: intermediates, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	return err
}
