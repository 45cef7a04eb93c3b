// Package certs has the certificates of a server: of an authority of its own, of files that another program renews, or of a public authority
// by ACME.
//
// The authority certifies only this server. Clients know the fingerprint of its public key (origin.Pin), which is a part of tokens, so
// that it must not change: the key is made once, in the data directory. The certificate of the server is made at each start and
// whenever it lacks an address of the machine or comes to its end; it is in memory only.
//
// All methods may be called concurrently.
package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/acme"
	"golang.org/x/crypto/acme/autocert"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/atomicfile"
	"github.com/muster-dev/muster/internal/origin"
)

// Config configures Certs: Own, the two files, or ACME.
type Config struct {
	Own      bool     // an authority of its own
	Names    []string // host names and addresses for its certificate, beside those of this machine
	CertFile string   // a certificate with its chain, in PEM
	KeyFile  string   // its key, in PEM
	ACME     ACME     // with Domains
	ClientCA string   // a PEM file with the authorities of the certificates that clients must present; "" for none
}

// Enabled reports whether there are certificates.
func (c *Config) Enabled() bool { return c.Own || c.CertFile != "" || len(c.ACME.Domains) > 0 }

// The validity of certificates. A new one replaces an old one before its end.
const (
	authorityValidity = 10 * 365 * 24 * time.Hour
	authorityRenewal  = 365 * 24 * time.Hour // before its end
	leafValidity      = 90 * 24 * time.Hour
	leafRenewal       = leafValidity / 3 // before its end
	backdated         = time.Hour        // for clients whose clocks are behind
)

const (
	addressInterval = time.Minute      // between two certificates for new addresses
	fileInterval    = 10 * time.Second // between two looks at the files
)

const maxSeen = 64

// The files of an authority, in the directory of Open.
const (
	KeyName  = "ca.key"
	CertName = "ca.crt"
)

// Certs are the certificates of one server.
type Certs struct {
	cfg Config
	dir string
	log *slog.Logger
	key *ecdsa.PrivateKey // of the own authority; nil for others

	manager *autocert.Manager // nil without ACME
	clients clientAuthorities

	mu        sync.Mutex
	authority *x509.Certificate
	current   *tls.Certificate
	leaf      *x509.Certificate
	madeAt    time.Time // the leaf, or when the files were last looked at
	seen      []net.IP  // addresses of this machine that only connections showed, at most maxSeen
	stamp     fileStamp
	failed    fileStamp            // of the files that could not be loaded
	ends      map[string]time.Time // of the certificates of ACME by domain; zero until there is one
}

// fileStamp tells whether the files have changed.
type fileStamp struct{ cert, key fileState }

type fileState struct {
	size int64
	time time.Time
}

// Open loads the certificates. An authority of its own is created in dir if there is none.
func Open(cfg Config, dir string, log *slog.Logger) (*Certs, error) {
	c := &Certs{cfg: cfg, dir: dir, log: log}
	if err := c.openClients(); err != nil {
		return nil, err
	}
	switch {
	case len(cfg.ACME.Domains) > 0:
		return c, c.openACME()
	case !cfg.Own:
		return c, c.load()
	}
	if err := c.openAuthority(); err != nil {
		return nil, err
	}
	return c, c.issue(time.Now())
}

// Pin returns the fingerprint of the own authority, "" for others.
func (c *Certs) Pin() string {
	if !c.cfg.Own {
		return ""
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return origin.PinOf(c.authority).String()
}

// Authority returns the certificate of the own authority in PEM, nil for others.
func (c *Certs) Authority() []byte {
	if !c.cfg.Own {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return encode("CERTIFICATE", c.authority.Raw)
}

// Ends returns when the certificates end: "server" and "authority", or the domains of ACME with zero for one that has not been obtained
// yet. Those of ACME are at most twelve hours old.
func (c *Certs) Ends() map[string]time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.manager != nil:
		return maps.Clone(c.ends)
	case c.cfg.Own:
		c.refresh(time.Now(), nil) // as a connection would
		return map[string]time.Time{"server": c.leaf.NotAfter, "authority": c.authority.NotAfter}
	default:
		c.reload()
		return map[string]time.Time{"server": c.leaf.NotAfter}
	}
}

// NameFor returns a name of the certificate that a client must use if it connects to host: "" if the certificate is valid for host, or
// clients do not compare names.
func (c *Certs) NameFor(host string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.cfg.Own:
		return ""
	case c.manager != nil && slices.Contains(c.cfg.ACME.Domains, host):
		return ""
	case c.manager != nil:
		return c.cfg.ACME.Domains[0]
	case c.leaf.VerifyHostname(host) == nil:
		return ""
	}
	switch names, ips := c.leaf.DNSNames, c.leaf.IPAddresses; {
	case len(names) > 0 && strings.HasPrefix(names[0], "*."):
		return "muster" + names[0][1:] // it is valid for any one
	case len(names) > 0:
		return names[0]
	case len(ips) > 0:
		return ips[0].String()
	default:
		return ""
	}
}

// TLSConfig returns the configuration of a listener.
func (c *Certs) TLSConfig() *tls.Config {
	config := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}, GetCertificate: c.certificate}
	if c.manager != nil {
		config.NextProtos, config.GetCertificate = append(config.NextProtos, acme.ALPNProto), c.acmeCertificate
	}
	if c.cfg.ClientCA != "" {
		c.requireClients(config)
	}
	return config
}

// certificate returns the certificate for a connection.
func (c *Certs) certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cfg.Own {
		c.refresh(now, localIP(hello.Conn))
	} else if now.Sub(c.madeAt) >= fileInterval {
		c.madeAt = now
		c.reload()
	}
	return c.current, nil
}

// refresh makes a new certificate if the current one comes to its end, or lacks an address of this machine. If that fails, the current
// one is still used. The caller holds mu.
func (c *Certs) refresh(now time.Time, local net.IP) {
	lacks := local != nil && !slices.ContainsFunc(c.leaf.IPAddresses, local.Equal) && now.Sub(c.madeAt) >= addressInterval
	if !lacks && now.Before(c.leaf.NotAfter.Add(-leafRenewal)) {
		return
	}
	if lacks && len(c.seen) < maxSeen {
		c.seen = append(c.seen, local)
	}
	if err := c.issueLocked(now); err != nil {
		c.log.Error("cannot renew the server's certificate", slog.Any("error", err))
	}
}

func localIP(conn net.Conn) net.IP {
	if conn == nil {
		return nil
	}
	if a, ok := conn.LocalAddr().(*net.TCPAddr); ok {
		return a.IP
	}
	return nil
}

// openAuthority loads the authority's key and certificate, or makes them.
func (c *Certs) openAuthority() error {
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return muster.Errorf(muster.Invalid, "cannot create the directory of the certificate authority: %w", err)
	}
	keyPath, certPath := filepath.Join(c.dir, KeyName), filepath.Join(c.dir, CertName)
	cert, err := readPEM(certPath, "CERTIFICATE")
	if err != nil {
		return err
	}
	key, err := readPEM(keyPath, "PRIVATE KEY")
	switch {
	case err != nil:
		return err
	case key == nil && cert != nil:
		return muster.Errorf(muster.Invalid, "%s is missing: restore it from a backup, or delete %s to create a new authority, which all workers and users have to join again", keyPath, certPath)
	case key == nil:
		if c.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
			return err
		}
		if key, err = x509.MarshalPKCS8PrivateKey(c.key); err != nil {
			return err
		}
		if err := atomicfile.Write(keyPath, encode("PRIVATE KEY", key), 0o600); err != nil {
			return muster.Errorf(muster.StorageFull, "cannot write the key of the certificate authority: %w", err)
		}
	default:
		parsed, err := x509.ParsePKCS8PrivateKey(key)
		own, ok := parsed.(*ecdsa.PrivateKey)
		if err != nil || !ok {
			return damaged(keyPath)
		}
		c.key = own
	}
	if cert == nil { // also after a crash in between
		return nil // issue makes it
	}
	if c.authority, err = x509.ParseCertificate(cert); err != nil || !c.key.PublicKey.Equal(c.authority.PublicKey) {
		return damaged(certPath)
	}
	return nil
}

func damaged(path string) error {
	return muster.Errorf(muster.Invalid, "%s is damaged or does not belong to the other file: restore the directory %s from a backup", path, filepath.Dir(path))
}

// readPEM returns the only block of a file, nil if there is no file.
func readPEM(path, kind string) ([]byte, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, muster.Errorf(muster.Invalid, "cannot read the certificate authority: %w", err)
	}
	block, _ := pem.Decode(data)
	if block == nil || block.Type != kind {
		return nil, damaged(path)
	}
	return block.Bytes, nil
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func (c *Certs) issue(now time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.issueLocked(now)
}

// issueLocked makes a certificate of the server, and before that a new one of the authority if that comes to its end.
func (c *Certs) issueLocked(now time.Time) error {
	c.madeAt = now
	if c.authority == nil || now.After(c.authority.NotAfter.Add(-authorityRenewal)) {
		if err := c.issueAuthority(now); err != nil {
			return err
		}
	}
	names, ips := machineNames()
	ips = append(ips, c.seen...)
	for _, name := range c.cfg.Names {
		if ip := net.ParseIP(name); ip != nil {
			ips = append(ips, ip)
		} else {
			names = append(names, name)
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: "Muster server"},
		NotBefore: now.Add(-backdated), NotAfter: now.Add(leafValidity),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, BasicConstraintsValid: true,
		DNSNames: unique(names), IPAddresses: uniqueIPs(ips),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, c.authority, &key.PublicKey, c.key)
	if err != nil {
		return muster.Errorf(muster.Internal, "cannot create the server's certificate: %w", err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return err
	}
	// With the authority, of which clients know only the fingerprint.
	c.current, c.leaf = &tls.Certificate{Certificate: [][]byte{der, c.authority.Raw}, PrivateKey: key, Leaf: leaf}, leaf
	return nil
}

// issueAuthority makes the certificate of the authority, with the same key.
func (c *Certs) issueAuthority(now time.Time) error {
	host, _ := os.Hostname() // only for people
	template := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: strings.TrimSpace("Muster CA " + host[:min(len(host), 40)])},
		NotBefore: now.Add(-backdated), NotAfter: now.Add(authorityValidity),
		IsCA: true, MaxPathLenZero: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &c.key.PublicKey, c.key)
	if err != nil {
		return muster.Errorf(muster.Internal, "cannot create the certificate authority: %w", err)
	}
	authority, err := x509.ParseCertificate(der)
	if err != nil {
		return err
	}
	if err := atomicfile.Write(filepath.Join(c.dir, CertName), encode("CERTIFICATE", der), 0o600); err != nil {
		return muster.Errorf(muster.StorageFull, "cannot write the certificate authority: %w", err)
	}
	c.authority = authority
	return nil
}

func serial() *big.Int {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[0] &= 0x7f
	return new(big.Int).SetBytes(b[:])
}

// machineNames returns the names and addresses of this machine.
func machineNames() (names []string, ips []net.IP) {
	names = []string{"localhost"}
	if host, err := os.Hostname(); err == nil && validName(host) {
		names = append(names, host)
		if !strings.Contains(host, ".") {
			names = append(names, host+".local") // multicast DNS
		}
	}
	ips = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	addrs, _ := net.InterfaceAddrs() // a connection shows the others
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && !n.IP.IsLinkLocalUnicast() {
			ips = append(ips, n.IP)
		}
	}
	return names, ips
}

// validName reports whether a name can be in a certificate.
func validName(name string) bool {
	return name != "" && len(name) <= 253 && !strings.ContainsFunc(name, func(r rune) bool {
		return r != '-' && r != '.' && r != '*' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	})
}

// CheckName returns an error unless name is a host name or an address.
func CheckName(name string) error {
	if net.ParseIP(name) == nil && !validName(name) {
		return muster.Errorf(muster.Invalid, "%q is not a host name or an IP address: write one such as muster.example.com or 203.0.113.7", name)
	}
	return nil
}

func unique(list []string) []string {
	slices.Sort(list)
	return slices.Compact(list)
}

func uniqueIPs(list []net.IP) []net.IP {
	for i, ip := range list {
		if v4 := ip.To4(); v4 != nil {
			list[i] = v4
		}
	}
	slices.SortFunc(list, func(a, b net.IP) int { return strings.Compare(string(a), string(b)) })
	return slices.CompactFunc(list, func(a, b net.IP) bool { return a.Equal(b) })
}
