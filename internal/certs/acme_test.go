package certs_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/certs"
	"github.com/muster-dev/muster/internal/mustertest/acmetest"
	"github.com/muster-dev/muster/internal/testkit"
)

// syncBuffer is a log.
type syncBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// acmeServer is a TLS listener with certificates of an authority. It closes each connection after the handshake.
type acmeServer struct {
	address string
	log     *syncBuffer
	certs   *certs.Certs
	stop    func()
}

// startACME serves on listener, which it closes in the end, with certificates for the domains.
func startACME(t *testing.T, a *acmetest.Authority, listener net.Listener, dir string, renewal time.Duration, domains ...string) *acmeServer {
	t.Helper()
	s := &acmeServer{address: listener.Addr().String(), log: new(syncBuffer)}
	c, err := certs.Open(certs.Config{ACME: certs.ACME{Domains: domains, Directory: a.Directory(), HTTP: a.Client(), Renewal: renewal, Retry: 100 * time.Millisecond}}, dir, slog.New(slog.NewTextHandler(s.log, nil)))
	testkit.NoError(t, err)
	s.certs = c
	ctx, cancel := context.WithCancel(t.Context())
	encrypted := tls.NewListener(listener, c.TLSConfig())
	var running sync.WaitGroup
	running.Go(func() {
		if err := c.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	running.Go(func() {
		for {
			conn, err := encrypted.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				_ = conn.(*tls.Conn).HandshakeContext(ctx)
				_ = conn.Close()
			})
		}
	})
	s.stop = sync.OnceFunc(func() {
		cancel()
		_ = encrypted.Close()
		running.Wait()
	})
	t.Cleanup(s.stop)
	return s
}

// dial connects to a name and returns the verified certificate.
func (s *acmeServer) dial(ctx context.Context, roots *x509.CertPool, name string) (*x509.Certificate, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	conn, err := (&tls.Dialer{Config: &tls.Config{RootCAs: roots, ServerName: name, MinVersion: tls.VersionTLS12}}).DialContext(ctx, "tcp", s.address)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return conn.(*tls.Conn).ConnectionState().PeerCertificates[0], nil
}

func listen(t *testing.T, address string) net.Listener {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", address)
	testkit.NoError(t, err)
	return l
}

// TestACME obtains certificates from an authority that refuses a fifth of all nonces, without any connection of a client. A restart uses the stored ones, also while
// the authority is down. Other names get none.
func TestACME(t *testing.T) {
	if testing.Short() {
		t.Skip("an ACME authority takes seconds: it is not for -short")
	}
	listener := listen(t, "127.0.0.1:0")
	a := acmetest.Start(t, listener.Addr().(*net.TCPAddr).Port, 90*24*3600)
	dir := t.TempDir()
	s := startACME(t, a, listener, dir, 0, "muster.example.com", "lab.example.com")
	testkit.AwaitNil(t, "both certificates are stored", time.Minute, func() error {
		files, err := filepath.Glob(filepath.Join(dir, "acme", "*.example.com"))
		if err == nil && len(files) != 2 {
			err = fmt.Errorf("there are %v; %s", files, s.log)
		}
		return err
	})
	orders := a.Orders.Load()
	first, err := s.dial(t.Context(), a.Roots, "muster.example.com")
	testkit.NoError(t, err)
	testkit.AwaitNil(t, "their ends are known", time.Minute, func() error {
		if ends := s.certs.Ends(); len(ends) != 2 || !ends["muster.example.com"].Equal(first.NotAfter) || ends["lab.example.com"].IsZero() {
			return fmt.Errorf("they are %v", ends)
		}
		return nil
	})
	if _, err := s.dial(t.Context(), a.Roots, "lab.example.com"); err != nil {
		t.Error(err)
	}
	if _, err := s.dial(t.Context(), a.Roots, "other.example.com"); err == nil || a.Orders.Load() != orders {
		t.Errorf("another name was ordered: %v", err)
	}
	if _, err := s.dial(t.Context(), a.Roots, ""); err == nil {
		t.Error("a connection without a name is trusted")
	}
	info, err := os.Stat(filepath.Join(dir, "acme", "muster.example.com"))
	testkit.NoError(t, err)
	if info.Mode().Perm() != 0o600 {
		t.Errorf("the key has the mode %v", info.Mode())
	}
	s.stop()
	a.Down.Store(true)
	s = startACME(t, a, listen(t, s.address), dir, 0, "muster.example.com", "lab.example.com")
	again, err := s.dial(t.Context(), a.Roots, "muster.example.com")
	testkit.NoError(t, err)
	if again.SerialNumber.Cmp(first.SerialNumber) != 0 || a.Orders.Load() != orders {
		t.Error("the restart ordered another certificate")
	}
}

// TestACMERenewal has certificates that are always due: the server renews them by itself.
func TestACMERenewal(t *testing.T) {
	if testing.Short() {
		t.Skip("an ACME authority takes seconds: it is not for -short")
	}
	listener := listen(t, "127.0.0.1:0")
	a := acmetest.Start(t, listener.Addr().(*net.TCPAddr).Port, 3600)
	dir, err := os.MkdirTemp("", "acme") //nolint:usetesting // a renewal may still write to it
	testkit.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s := startACME(t, a, listener, dir, 2*time.Hour, "muster.example.com")
	serials := map[string]bool{}
	testkit.AwaitNil(t, "the certificate is renewed", time.Minute, func() error {
		cert, err := s.dial(t.Context(), a.Roots, "muster.example.com")
		if err != nil {
			return err
		}
		if serials[cert.SerialNumber.String()] = true; len(serials) < 2 {
			return fmt.Errorf("it is not; %s", s.log)
		}
		return nil
	})
}

// TestACMEAuthorityIsDown starts a server whose authority does not work: it serves connections without a name, says what is wrong, and stops at once.
func TestACMEAuthorityIsDown(t *testing.T) {
	listener := listen(t, "127.0.0.1:0")
	a := acmetest.Start(t, listener.Addr().(*net.TCPAddr).Port, 3600)
	a.Down.Store(true)
	s := startACME(t, a, listener, t.TempDir(), 0, "muster.example.com")
	testkit.AwaitNil(t, "the failure is logged", time.Minute, func() error {
		if !strings.Contains(s.log.String(), "cannot obtain a certificate, trying again") || !strings.Contains(s.log.String(), "domain=muster.example.com") {
			return fmt.Errorf("the log is %s", s.log)
		}
		return nil
	})
	conn, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(t.Context(), "tcp", s.address) // like a health check
	testkit.NoError(t, err)
	testkit.NoError(t, conn.Close())
	stopping := time.Now()
	s.stop()
	if took := time.Since(stopping); took > 5*time.Second {
		t.Errorf("it stopped after %v", took)
	}
}

func TestDomains(t *testing.T) {
	t.Parallel()
	for name, ok := range map[string]bool{"muster.example.com": true, "lab.local": true, "lab": false, "10.0.0.5": false, "*.example.com": false, "": false, "a b.com": false, "http://a.com": false} {
		if err := certs.CheckDomain(name); (err == nil) != ok || err != nil && muster.CodeOf(err) != muster.Invalid {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// TestChallenges asks the port of http-01 for what it must not answer, and for a page.
func TestChallenges(t *testing.T) {
	t.Parallel()
	c, err := certs.Open(certs.Config{ACME: certs.ACME{Domains: []string{"muster.example.com"}}}, t.TempDir(), slog.New(slog.DiscardHandler))
	testkit.NoError(t, err)
	for _, tc := range []struct {
		base, method, host, path string
		code                     int
		location                 string
	}{
		{"", "GET", "muster.example.com", "/jobs/1?a=b%2Fc", 308, "https://muster.example.com/jobs/1?a=b%2Fc"},
		{"", "HEAD", "Muster.Example.com:80", "/", 308, "https://Muster.Example.com/"},
		{"https://muster.example.com:8700", "GET", "muster.example.com", "/jobs", 308, "https://muster.example.com:8700/jobs"},
		{"", "GET", "muster.example.com", "//other.example.com/", 308, "https://muster.example.com//other.example.com/"},
		{"", "POST", "muster.example.com", "/api/v1/jobs", 404, ""},
		{"", "GET", "other.example.com", "/", 404, ""},
		{"", "GET", "muster.example.com", "/.well-known/acme-challenge/unknown", 404, ""},
		{"", "GET", "muster.example.com", "/.well-known/acme-challenge/../muster.example.com", 404, ""},
		{"", "GET", "other.example.com", "/.well-known/acme-challenge/unknown", 403, ""},
	} {
		r := httptest.NewRequestWithContext(t.Context(), tc.method, tc.path, http.NoBody)
		r.Host = tc.host
		rec := httptest.NewRecorder()
		c.Challenges(tc.base).ServeHTTP(rec, r)
		if rec.Code != tc.code || rec.Header().Get("Location") != tc.location {
			t.Errorf("%s %s of %s: %d %q", tc.method, tc.path, tc.host, rec.Code, rec.Header().Get("Location"))
		}
	}
	if ends := c.Ends(); len(ends) != 1 || !ends["muster.example.com"].IsZero() {
		t.Errorf("before there is a certificate, the ends are %v", ends)
	}
}
