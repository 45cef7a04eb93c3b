package certs_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/certs"
	"github.com/muster-dev/muster/internal/origin"
	"github.com/muster-dev/muster/internal/testkit"
)

func open(t *testing.T, cfg certs.Config, dir string) *certs.Certs {
	t.Helper()
	c, err := certs.Open(cfg, dir, slog.New(slog.DiscardHandler))
	testkit.NoError(t, err)
	return c
}

// presented returns the certificates for a connection to a local address, which may be nil.
func presented(t *testing.T, c *certs.Certs, local net.IP) []*x509.Certificate {
	t.Helper()
	hello := &tls.ClientHelloInfo{}
	if local != nil {
		hello.Conn = localConn{ip: local}
	}
	pair, err := c.TLSConfig().GetCertificate(hello)
	testkit.NoError(t, err)
	var list []*x509.Certificate
	for _, der := range pair.Certificate {
		cert, err := x509.ParseCertificate(der)
		testkit.NoError(t, err)
		list = append(list, cert)
	}
	return list
}

type localConn struct {
	net.Conn

	ip net.IP
}

func (c localConn) LocalAddr() net.Addr { return &net.TCPAddr{IP: c.ip, Port: 8700} }

// verify checks a presented chain as a client that knows the pin, or returns its error.
func verify(t *testing.T, chain []*x509.Certificate, pin string) error {
	t.Helper()
	config, err := origin.Options{CA: pin}.TLSConfig()
	testkit.NoError(t, err)
	return config.VerifyConnection(tls.ConnectionState{PeerCertificates: chain})
}

// TestAuthorityIsMadeOnce checks that the fingerprint and the key survive restarts, and who can read the key.
func TestAuthorityIsMadeOnce(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "tls")
	first := open(t, certs.Config{Own: true, Names: []string{"muster.example", "203.0.113.7"}}, dir)
	info, err := os.Stat(filepath.Join(dir, certs.KeyName))
	testkit.NoError(t, err)
	if info.Mode().Perm() != 0o600 {
		t.Errorf("the key has the mode %v", info.Mode())
	}
	chain := presented(t, first, nil)
	for _, name := range []string{"localhost", "127.0.0.1", "::1", "muster.example", "203.0.113.7"} {
		if err := chain[0].VerifyHostname(name); err != nil {
			t.Error(err)
		}
	}
	if ends := first.Ends(); len(ends) != 2 || !ends["server"].Equal(chain[0].NotAfter) || !ends["authority"].Equal(chain[1].NotAfter) {
		t.Errorf("the ends are %v", ends)
	}
	again := open(t, certs.Config{Own: true}, dir)
	if again.Pin() != first.Pin() {
		t.Error("a restart made another authority")
	}
	testkit.NoError(t, verify(t, presented(t, again, nil), first.Pin()))
	if block, _ := pem.Decode(again.Authority()); block == nil || string(block.Bytes) != string(chain[1].Raw) {
		t.Error("Authority is not the presented one")
	}
	// A crash after the key was written: the certificate is made for it.
	testkit.NoError(t, os.Remove(filepath.Join(dir, certs.CertName)))
	if third := open(t, certs.Config{Own: true}, dir); third.Pin() != first.Pin() {
		t.Error("without its certificate, the key is not used")
	}
}

// TestBrokenAuthorityIsRefused checks that a server with a lost or damaged key does not silently make another one, which no client would trust.
func TestBrokenAuthorityIsRefused(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(key, cert string) error{
		"the key is gone":         func(key, _ string) error { return os.Remove(key) },
		"the key is empty":        func(key, _ string) error { return os.WriteFile(key, nil, 0o600) },
		"the key is another file": func(key, cert string) error { return os.Rename(cert, key) },
		"the certificate is broken": func(_, cert string) error {
			return os.WriteFile(cert, []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), 0o600)
		},
		"the key is of another authority": func(key, _ string) error {
			other := filepath.Join(filepath.Dir(key), "other")
			if _, err := certs.Open(certs.Config{Own: true}, other, slog.New(slog.DiscardHandler)); err != nil {
				return err
			}
			return os.Rename(filepath.Join(other, certs.KeyName), key)
		},
	} {
		dir := filepath.Join(t.TempDir(), "tls")
		open(t, certs.Config{Own: true}, dir)
		testkit.NoError(t, damage(filepath.Join(dir, certs.KeyName), filepath.Join(dir, certs.CertName)))
		if _, err := certs.Open(certs.Config{Own: true}, dir, slog.New(slog.DiscardHandler)); muster.CodeOf(err) != muster.Invalid || !strings.Contains(err.Error(), "restore") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestRenewal runs a server for eleven years: clients that know the first fingerprint accept every certificate, and none comes to its end.
func TestRenewal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "tls")
		c := open(t, certs.Config{Own: true}, dir)
		pin := c.Pin()
		leaves, authorities := map[string]bool{}, map[string]bool{}
		for range 11 * 365 {
			chain := presented(t, c, nil)
			if err := verify(t, chain, pin); err != nil {
				t.Fatal(err)
			}
			for _, cert := range chain {
				if left := time.Until(cert.NotAfter); left < 29*24*time.Hour {
					t.Fatalf("the certificate of %s has %v left", cert.Subject, left)
				}
			}
			leaves[chain[0].SerialNumber.String()] = true
			authorities[chain[1].SerialNumber.String()] = true
			time.Sleep(24 * time.Hour)
		}
		if len(leaves) < 11*365/90 || len(authorities) != 2 {
			t.Errorf("there were %d certificates of %d authorities", len(leaves), len(authorities))
		}
		if open(t, certs.Config{Own: true}, dir).Pin() != pin {
			t.Error("the new authority has another fingerprint")
		}
	})
}

// TestNewAddress gives the machine an address after the start of the server.
func TestNewAddress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := open(t, certs.Config{Own: true}, t.TempDir())
		has := func(ip net.IP) bool {
			return slices.ContainsFunc(presented(t, c, ip)[0].IPAddresses, ip.Equal)
		}
		one, other := net.ParseIP("203.0.113.9"), net.ParseIP("2001:db8::9")
		if has(one) {
			t.Error("a new certificate was made at once")
		}
		time.Sleep(time.Minute)
		if !has(one) {
			t.Error("the new address is not in the certificate")
		}
		time.Sleep(time.Minute)
		if !has(other) || !has(one) {
			t.Error("the certificate does not have both addresses")
		}
		serial := presented(t, c, one)[0].SerialNumber
		time.Sleep(time.Hour)
		if presented(t, c, other)[0].SerialNumber.Cmp(serial) != 0 {
			t.Error("known addresses made another certificate")
		}
	})
}

// writePair writes a self-signed certificate for a name, and its key.
func writePair(t *testing.T, certFile, keyFile, name string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	testkit.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * 365 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	testkit.NoError(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	testkit.NoError(t, err)
	testkit.NoError(t, os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	if keyFile != "" {
		testkit.NoError(t, os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600))
	}
}

// TestFilesAreReloaded replaces the files in two steps, by a broken pair and by nothing: the last pair that fits is used.
func TestFilesAreReloaded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		cert, key := filepath.Join(t.TempDir(), "cert.pem"), filepath.Join(t.TempDir(), "key.pem")
		writePair(t, cert, key, "one.example")
		c, err := certs.Open(certs.Config{CertFile: cert, KeyFile: key}, "", slog.New(slog.NewTextHandler(&log, nil)))
		testkit.NoError(t, err)
		now := func() string { return presented(t, c, nil)[0].Subject.CommonName }
		expect := func(when, want string) {
			t.Helper()
			time.Sleep(10 * time.Second)
			if got := now(); got != want {
				t.Errorf("%s: %s is used", when, got)
			}
		}
		if c.Pin() != "" || c.Authority() != nil {
			t.Error("files have an authority of their own")
		}
		for host, want := range map[string]string{"one.example": "", "127.0.0.1": "one.example"} {
			if got := c.NameFor(host); got != want {
				t.Errorf("NameFor(%s) = %q", host, got)
			}
		}
		expect("unchanged", "one.example")
		writePair(t, cert, "", "two.example") // its key is not there yet
		expect("half replaced", "one.example")
		expect("still half replaced", "one.example")
		if n := strings.Count(log.String(), "level=ERROR"); n != 1 {
			t.Errorf("%d errors were logged: %s", n, log.String())
		}
		writePair(t, cert, key, "three.example")
		if got := now(); got != "one.example" {
			t.Errorf("the files are read for each connection: %s", got)
		}
		expect("replaced", "three.example")
		testkit.NoError(t, os.WriteFile(cert, []byte("no certificate"), 0o600))
		expect("broken", "three.example")
		testkit.NoError(t, os.Remove(cert))
		testkit.NoError(t, os.Remove(key))
		expect("removed", "three.example")
		writePair(t, cert, key, "four.example")
		expect("there again", "four.example")
	})
}

func TestUnusableFilesAreRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	writePair(t, path("cert"), path("key"), "one.example")
	writePair(t, path("other-cert"), path("other-key"), "other.example")
	for _, c := range []certs.Config{
		{CertFile: path("none"), KeyFile: path("key")}, {CertFile: path("cert"), KeyFile: path("other-key")}, {CertFile: path("key"), KeyFile: path("cert")}, {CertFile: dir, KeyFile: path("key")},
	} {
		if _, err := certs.Open(c, "", slog.New(slog.DiscardHandler)); muster.CodeOf(err) != muster.Invalid || !strings.Contains(err.Error(), c.CertFile) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	for name, ok := range map[string]bool{"lab": true, "*.example.com": true, "10.0.0.5": true, "fe80::1": true, "": false, "a b": false, "http://lab": false, "lab:8700": false, "läb": false, strings.Repeat("a", 254): false} {
		if err := certs.CheckName(name); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// TestConcurrentHandshakes is for the race detector.
func TestConcurrentHandshakes(t *testing.T) {
	t.Parallel()
	c := open(t, certs.Config{Own: true}, t.TempDir())
	done := make(chan struct{})
	for i := range 8 {
		go func() {
			defer func() { done <- struct{}{} }()
			for j := range 20 {
				if _, err := c.TLSConfig().GetCertificate(&tls.ClientHelloInfo{Conn: localConn{ip: net.ParseIP(fmt.Sprintf("203.0.113.%d", i*20+j))}}); err != nil {
					t.Error(err)
				}
				_ = c.Authority()
				_ = c.NameFor("lab")
			}
		}()
	}
	for range 8 {
		<-done
	}
}
